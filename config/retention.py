"""Settings of what is thrown away when it is old, or when there is too much of it."""

from dataclasses import dataclass

from config import value_rules as rules
from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class RetentionSettings:
    enabled: bool = setting(False, "coordinators throw away by these rules once an hour, not only `trainyard db prune`")
    jobs_days: int = setting(
        0, "ended jobs go with all that is theirs, this many days after their end; 0: never", rules.not_negative
    )
    checkpoints_days: int = setting(
        0, "checkpoints of ended jobs that nobody resumes from; 0: as long as their job", rules.not_negative
    )
    logs_days: int = setting(0, "log lines of ended jobs; 0: as long as their job", rules.not_negative)
    metrics_days: int = setting(0, "metric points of ended jobs; 0: as long as their job", rules.not_negative)
    events_days: int = setting(0, "histories of ended jobs; 0: as long as their job", rules.not_negative)
    audit_days: int = setting(0, "lines of the audit trail; 0: for ever", rules.not_negative)
    checkpoints_max_bytes: int = setting(
        0, "when all checkpoints take more, those of the jobs that ended first go; 0: no limit", rules.not_negative
    )
    logs_max_bytes: int = setting(
        0, "when logs of ended jobs take more, those of the jobs that ended first go; 0: no limit", rules.not_negative
    )
