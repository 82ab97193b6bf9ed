"""What the rules of retention stand on, and which jobs ended long ago."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select

from app.domain.lifecycle.states import TERMINAL
from app.models import Job
from app.services.requests.control_plane import ControlPlane
from config.retention import RetentionSettings

JOBS_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True)
class Ground:
    """``dry_run``: only count. ``now`` is passed in, and by it everything is old or not."""

    plane: ControlPlane
    settings: RetentionSettings
    now: datetime
    dry_run: bool

    def before(self, days: int) -> datetime:
        return self.now - timedelta(days=days)

    def ended_before(self, days: int) -> Iterator[Sequence[str]]:
        """Ids of the jobs that ended so long ago, some at a time."""
        query = select(Job.id).where(Job.status.in_(TERMINAL), Job.finished_at < self.before(days)).order_by(Job.id)
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
    """``count`` things of a kind and their bytes, where those are known; ``kept`` is what others still need."""

    count: int = 0
    bytes: int = 0
    kept: int = 0

    def __add__(self, other: "Pruned") -> "Pruned":
        return Pruned(count=self.count + other.count, bytes=self.bytes + other.bytes, kept=self.kept + other.kept)
