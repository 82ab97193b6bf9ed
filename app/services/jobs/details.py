"""Job details: a job with its queue position, children and running attempt from other tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import RUNNING
from app.domain.memory.fit import Fit
from app.domain.scheduling.start_estimates import LOOK_AHEAD
from app.domain.spec.interactive import InteractiveConfig, Port
from app.domain.spec.model import JobDocument
from app.models import Attempt, Job
from app.models.base import utc_now
from app.services.access.key_names import key_names
from app.services.queues import queues
from app.services.requests.short_cache import ShortCache
from app.services.scheduling import start_estimates

OUTLOOK_SECONDS = 3.0
SHOWN_REQUESTS = ("pause", "cancel", "drain")


@dataclass(frozen=True, kw_only=True)
class JobDetails:
    """``stored`` is the stored document with later changes applied, without secrets."""

    job: Job
    stored: Mapping[str, Any]
    requested: str | None
    pending_reason: str
    queue_position: int | None
    elapsed_seconds: float
    child_job_ids: Sequence[str]
    estimated_start_at: datetime | None
    created_by_name: str = ""  # of the key; empty for one without a name
    memory_estimate: Fit | None = None  # of one job alone: it costs a file
    evaluations: Sequence[str] | None = None  # of one training alone: it costs a query

    @property
    def ready(self) -> bool | None:
        return self.job.ready if self.job.state in RUNNING else None

    @property
    def kept_until(self) -> datetime | None:
        return self.job.kept_until if self.job.state in RUNNING else None

    @property
    def ports(self) -> Sequence[Port]:
        """Read from the stored document alone, which is quick for jobs without any."""
        config = self.stored.get("interactive_config")
        return InteractiveConfig.from_json(config).all_ports if config else ()

    @cached_property
    def document(self) -> JobDocument:
        return JobDocument.from_json(self.stored)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Queue position of a pending job, and its estimated start if known."""

    position: int
    starts_at: datetime | None


def details_of(session: Session, jobs: Sequence[Job], shared: ShortCache | None = None) -> list[JobDetails]:
    """Details in the order given, with a constant number of queries. Readers share estimates by ``shared``."""
    places = queues.positions(session, [job.id for job in jobs if job.state in queues.WAITING])
    expected = start_estimates.of_waiting(session, places, shared)
    outlooks = {job_id: Outlook(position=place, starts_at=expected.get(job_id)) for job_id, place in places.items()}
    return _details_of(session, jobs, outlooks)


def without_outlook(session: Session, jobs: Sequence[Job]) -> list[JobDetails]:
    """As `details_of`, but without queue positions and estimated starts, which cost most."""
    return _details_of(session, jobs, {})


def details(session: Session, job: Job, shared: ShortCache | None = None) -> JobDetails:
    return details_of(session, [job], shared)[0]


def outlook(session: Session, job: Job, *, priority: int) -> Outlook | None:
    """Position and estimate for a job at this priority; None for one that is not pending.

    Cost grows with the number of pending jobs: callers compute it before the transaction that changes the job.
    """
    if job.state not in queues.WAITING:
        return None
    place = queues.place_at(session, job, priority)
    return Outlook(position=place, starts_at=start_estimates.of_moved(session, job, place, priority=priority))


def viewed(session: Session, job: Job, shared: ShortCache) -> JobDetails:
    """As `details`, with an outlook that all viewers of a page share for a moment."""
    if job.state not in queues.WAITING:
        return _details_of(session, [job], {})[0]
    key = ("place", job.id, job.version)
    place = shared.get(key, OUTLOOK_SECONDS, lambda: queues.place_at(session, job, job.priority))
    expected: Mapping[str, datetime] = {}
    if place <= LOOK_AHEAD:
        expected = start_estimates.shared_front(session, shared, OUTLOOK_SECONDS).expected
    return _details_of(session, [job], {job.id: Outlook(position=place, starts_at=expected.get(job.id))})[0]


def changed(session: Session, job: Job, expected: Outlook | None = None) -> JobDetails:
    """Details within the transaction of a change, which uses the outlook computed before it."""
    outlooks = {job.id: expected} if expected is not None and job.state in queues.WAITING else {}
    return _details_of(session, [job], outlooks)[0]


def of_new(job: Job) -> JobDetails:
    """Details of a job that was just submitted: no other table refers to it yet."""
    return JobDetails(
        job=job,
        stored=_current(job),
        requested=None,
        pending_reason=job.pending_reason,
        queue_position=None,
        elapsed_seconds=0.0,
        child_job_ids=(),
        estimated_start_at=None,
    )


def _details_of(session: Session, jobs: Sequence[Job], outlooks: Mapping[str, Outlook]) -> list[JobDetails]:
    ids = [job.id for job in jobs]
    reasons = queues.pending_reasons(session, jobs)
    started = _running_since(session, [job.id for job in jobs if job.state in RUNNING])
    children, authors = _children(session, ids), key_names(session, {job.created_by for job in jobs})
    now = utc_now()
    return [
        JobDetails(
            job=job,
            stored=_current(job),
            requested=job.requested if job.requested in SHOWN_REQUESTS else None,
            pending_reason=reasons[job.id],
            queue_position=outlooks[job.id].position if job.id in outlooks else None,
            estimated_start_at=outlooks[job.id].starts_at if job.id in outlooks else None,
            elapsed_seconds=_elapsed(job, started.get(job.id), now),
            child_job_ids=children.get(job.id, []),
            created_by_name=authors.get(job.created_by, ""),
        )
        for job in jobs
    ]


def _current(job: Job) -> dict[str, Any]:
    return {**job.spec, "scheduling_config": {**job.spec.get("scheduling_config", {}), "priority": job.priority}}


def _elapsed(job: Job, running_since: datetime | None, now: datetime) -> float:
    running = max(0.0, (now - running_since).total_seconds()) if running_since is not None else 0.0
    return round(job.elapsed_seconds + running, 3)


def _running_since(session: Session, ids: Sequence[str]) -> dict[str, datetime]:
    if not ids:
        return {}
    query = select(Attempt.job_id, Attempt.started_at).where(
        Attempt.job_id.in_(ids), Attempt.ended_at.is_(None), Attempt.started_at.is_not(None)
    )
    return {row.job_id: row.started_at for row in session.execute(query)}


def _children(session: Session, ids: Sequence[str]) -> dict[str, list[str]]:
    if not ids:
        return {}
    found: dict[str, list[str]] = {}
    query = select(Job.parent_job_id, Job.id).where(Job.parent_job_id.in_(ids)).order_by(Job.id)
    for parent, child in session.execute(query):
        found.setdefault(parent or "", []).append(child)
    return found
