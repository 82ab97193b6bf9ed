"""The limit of waiting jobs of projects whose quota has none: counted now and then, so that submissions stay cheap.

It protects the other projects from one that submits without end. A quota's own `max_waiting_jobs` is exact.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.domain.errors import QuotaExceeded
from app.models import Project
from app.services.queues.limits import RETRY_FULL_SECONDS, WAITING
from app.services.queues.project_quotas import count_jobs

_REMEMBERED_SECONDS = 1.0
_MOST_PROJECTS = 1000  # remembered


@dataclass
class _Seen:
    at: float
    waiting: int
    has_own_limit: bool


class WaitingLimit:
    """One per process; ``most`` 0 means unlimited. Several processes and threads may exceed it a little."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def refuse_one_too_many(self, session: Session, project: str) -> None:
        """Raises QuotaExceeded; else the caller adds a job."""
        if not self._most:
            return
        seen = self._seen.get(project)
        if seen is None or self._clock() - seen.at > _REMEMBERED_SECONDS:
            seen = self._count(session, project)
        if seen.has_own_limit:
            return
        if seen.waiting >= self._most:
            raise QuotaExceeded(
                f"the project {project} has {seen.waiting} waiting jobs of at most {self._most} "
                "(TRAINYARD_SCHEDULER_MAX_WAITING_JOBS); submit again when one has started, cancel one, or have its "
                "quota set max_waiting_jobs",
                retry_after_seconds=RETRY_FULL_SECONDS,
            )
        seen.waiting += 1

    def _count(self, session: Session, project: str) -> _Seen:
        found = session.get(Project, project) if "\0" not in project else None
        seen = _Seen(
            at=self._clock(),
            waiting=count_jobs(session, [project], WAITING).get(project, 0) if found is not None else 0,
            has_own_limit=found is not None and found.quota.get("max_waiting_jobs") is not None,
        )
        if len(self._seen) >= _MOST_PROJECTS:
            self._seen.clear()
        if found is not None:
            self._seen[project] = seen
        return seen
