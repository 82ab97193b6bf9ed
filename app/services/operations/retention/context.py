"""The context of retention rules, and the query for jobs that finished long ago."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import aliased

from app.domain.lifecycle.states import TERMINAL
from app.models import Job, Sweep
from app.security.permissions import Caller, Role
from app.services.requests.control_plane import ControlPlane
from config.retention import RetentionSettings

JOBS_AT_ONCE = 200
RETENTION = Caller(key_id="retention", role=Role.SUPER_ADMIN, project=None)


@dataclass(frozen=True, kw_only=True)
class RetentionContext:
    """``dry_run``: count without deleting. ``now`` is the reference time of all ages."""

    plane: ControlPlane
    settings: RetentionSettings
    now: datetime
    dry_run: bool

    def before(self, days: int) -> datetime:
        return self.now - timedelta(days=days)

    def ended_before(self, days: int) -> Iterator[Sequence[str]]:
        """Ids of the jobs that finished before, in batches. Trials have if their sweep has, too: until then others may
        begin with their checkpoints, and one of them will be the best. An evaluation has if the
        training that it measured has, too: its value counts for that one's trial.
        """
        before = self.before(days)
        trained = aliased(Job)
        sweep_id = func.coalesce(Job.sweep_id, trained.sweep_id)
        query = (
            select(Job.id)
            .outerjoin(trained, trained.id == Job.evaluated_job_id)
            .outerjoin(Sweep, Sweep.id == sweep_id)
            .where(Job.status.in_(TERMINAL), Job.finished_at < before)
            .where(trained.id.is_(None) | (trained.status.in_(TERMINAL) & (trained.finished_at < before)))
            .where(sweep_id.is_(None) | (Sweep.finished_at < before))
            .order_by(Job.id)
        )
        last = ""
        while True:
            with self.plane.db.read() as session:
                ids = session.scalars(query.where(Job.id > last).limit(JOBS_AT_ONCE)).all()
            if not ids:
                return
            yield ids
            last = ids[-1]


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """``count`` deleted objects and their bytes, where known; ``kept`` is the number still needed by others."""

    count: int = 0
    bytes: int = 0
    kept: int = 0

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(count=self.count + other.count, bytes=self.bytes + other.bytes, kept=self.kept + other.kept)
