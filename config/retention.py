"""Retention settings: when old or excess data is deleted."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class RetentionSettings:
    enabled: bool = setting(False, "coordinators apply these rules once an hour, in addition to `trainyard db prune`")
    jobs_days: int = setting(
        0,
        "ended jobs and all their data are deleted this many days after their end, trials after that of their sweep; "
        "0: never",
        rules.not_negative,
    )
    sweeps_days: int = setting(
        0,
        "ended sweeps and the records of their trials are deleted this many days after their end, without the jobs, "
        "whose age then counts from their own end; 0: never",
        rules.not_negative,
    )
    checkpoints_days: int = setting(
        0, "checkpoints of ended jobs that no job resumes from; 0: as long as their job", rules.not_negative
    )
    logs_days: int = setting(0, "log lines of ended jobs; 0: as long as their job", rules.not_negative)
    metrics_days: int = setting(0, "metric points of ended jobs; 0: as long as their job", rules.not_negative)
    events_days: int = setting(0, "histories of ended jobs and sweeps; 0: as long as these", rules.not_negative)
    files_days: int = setting(
        0, "uploaded files that nothing stored names, after their upload; 0: until they are deleted", rules.not_negative
    )
    audit_days: int = setting(0, "entries of the audit trail; 0: forever", rules.not_negative)
    usage_days: int = setting(0, "what keys have used of models, by day; 0: forever", rules.not_negative)
    checkpoints_max_bytes: int = setting(
        0,
        "total size of checkpoints above which those of the jobs that ended first are deleted; 0: no limit",
        rules.not_negative,
    )
    logs_max_bytes: int = setting(
        0,
        "total size of logs of ended jobs above which those of the jobs that ended first are deleted; 0: no limit",
        rules.not_negative,
    )
