"""The retention rules, and applying the enabled ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from app.database.engine import Database
from app.models.base import utc_now
from app.services.lifecycle import audit
from app.services.operations.control_plane import control_plane
from app.services.operations.retention import files, rows, sweeps, uploads
from app.services.operations.retention.context import Pruned, RetentionContext
from app.services.requests.control_plane import ControlPlane
from app.services.requests.wakeups import Dispatcher
from config.settings import Settings, variable_name


@dataclass(frozen=True)
class RetentionRule:
    """A rule is enabled by a ``setting`` above 0, or always if it has none."""

    what: str
    setting: str
    prune: Callable[[RetentionContext], Pruned]

    @property
    def variable(self) -> str:
        return variable_name("retention", self.setting) if self.setting else ""


# Jobs first: the other rules then have less to process.
RULES = (
    RetentionRule("jobs", "jobs_days", files.jobs),
    RetentionRule("checkpoints", "checkpoints_days", files.old_checkpoints),
    RetentionRule("checkpoints over the budget", "checkpoints_max_bytes", files.checkpoints_over_budget),
    RetentionRule("logs", "logs_days", files.old_logs),
    RetentionRule("logs over the budget", "logs_max_bytes", files.logs_over_budget),
    RetentionRule("metric points", "metrics_days", rows.metrics),
    RetentionRule("events", "events_days", rows.events),
    RetentionRule("audit entries", "audit_days", rows.audit_entries),
    RetentionRule("sweeps", "sweeps_days", sweeps.sweeps),
    RetentionRule("services", "jobs_days", rows.services),
    RetentionRule("batches", "jobs_days", rows.batches),
    RetentionRule("uploaded files", "files_days", uploads.files),
    RetentionRule("model usage", "usage_days", rows.model_usage),
    RetentionRule("idempotency answers", "", rows.answers),
)


def enabled_rules(settings: Settings) -> list[RetentionRule]:
    return [rule for rule in RULES if not rule.setting or getattr(settings.retention, rule.setting)]


def prune(
    db: Database, settings: Settings, *, actor: str, dry_run: bool = False, now: datetime | None = None
) -> Iterator[tuple[RetentionRule, Pruned]]:
    """Apply each enabled rule and yield its result; a dry run counts for each rule independently."""
    context = RetentionContext(
        plane=_plane(db, settings), settings=settings.retention, now=now or utc_now(), dry_run=dry_run
    )
    done: dict[str, int] = {}
    for rule in enabled_rules(settings):
        pruned = rule.prune(context)
        if pruned.count:
            done[rule.what] = pruned.count
        yield rule, pruned
    if done and not dry_run:
        with db.write() as session:
            audit.record(session, actor=actor, action="db.prune", project=None, data=done)


def _plane(db: Database, settings: Settings) -> ControlPlane:
    return control_plane(settings, db, Dispatcher(settings))  # the dispatcher is never used: pruning wakes no process
