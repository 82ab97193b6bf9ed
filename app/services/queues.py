"""Queues: named waiting lines, and the one line of all jobs that wait in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from app.domain.errors import UnknownQueue
from app.domain.job_state import HELD, JobState
from app.extensions import Database
from app.models import Job, Queue
from app.security.permissions import Caller
from app.services.pages import Orders, Page, PageRequest, page_of

WAITING = (JobState.PENDING, JobState.QUEUED)
# A job that was not admitted yet will be queued after everything that is; until then its submission counts.
_WAITING_SINCE = func.coalesce(Job.queued_at, Job.created_at, type_=Job.created_at.type)
# The order in which the planner serves: most urgent first, then oldest.
_LINE = ((-Job.priority), _WAITING_SINCE, Job.id)
ORDERS: Orders = {
    "priority": _LINE,
    "created_at": (Job.created_at, Job.id),
    "name": (Job.name, Job.id),
    "status": (Job.status, Job.id),
}


@dataclass(frozen=True, kw_only=True)
class QueueSummary:
    queue: Queue
    waiting: int
    running: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A waiting job; ``position`` counts from 1 over everybody's jobs."""

    job: Job
    position: int
    waiting_seconds: float


def ensure(session: Session, name: str) -> Queue:
    """The queue, made when it is not there."""
    queue = session.get(Queue, name)
    if queue is None:
        queue = Queue(name=name)
        session.add(queue)
        session.flush()
    return queue


def require(session: Session, name: str, *, field: str) -> None:
    """Raises UnknownQueue, naming those that exist."""
    if session.get(Queue, name) is None:
        known = ", ".join(session.scalars(select(Queue.name).order_by(Queue.name).limit(20)))
        raise UnknownQueue(f"no queue {name!r}; known: {known or 'none'}", field=field)


def names(db: Database) -> list[str]:
    """Every queue there is."""
    with db.read() as session:
        return list(session.scalars(select(Queue.name).order_by(Queue.name)))


def summaries(session: Session, caller: Caller) -> list[QueueSummary]:
    """Every queue with how many of the caller's jobs wait and run in it."""
    counts = select(Job.queue, Job.status, func.count()).group_by(Job.queue, Job.status)
    if caller.project is not None:
        counts = counts.where(Job.project == caller.project)
    waiting: dict[str, int] = {}
    running: dict[str, int] = {}
    for queue, status, count in session.execute(counts.where(Job.status.in_([*WAITING, *HELD]))):
        into = waiting if status in WAITING else running
        into[queue] = into.get(queue, 0) + count
    return [
        QueueSummary(queue=queue, waiting=waiting.get(queue.name, 0), running=running.get(queue.name, 0))
        for queue in session.scalars(select(Queue).order_by(Queue.name))
    ]


def line(
    session: Session, caller: Caller, request: PageRequest, *, now: datetime, queue: str | None = None
) -> Page[Entry]:
    """The caller's waiting jobs."""
    query = select(Job).where(Job.status.in_(WAITING))
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    if queue is not None:
        query = query.where(Job.queue == queue)
    page = page_of(session, query, ORDERS, request)
    places = positions(session, [job.id for job in page.items])
    entries = [Entry(job=job, position=places.get(job.id, 0), waiting_seconds=_waited(job, now)) for job in page.items]
    return Page(
        items=entries, next_after=page.next_after, total_count=page.total_count,
        total_count_capped=page.total_count_capped,
    )  # fmt: skip


def _waited(job: Job, now: datetime) -> float:
    return max(0.0, round((now - (job.queued_at or job.created_at)).total_seconds(), 3))


def positions(session: Session, job_ids: Sequence[str]) -> dict[str, int]:
    """Job id → place in the line, for those that wait."""
    if not job_ids:
        return {}
    places: Select[Any] = select(Job.id, func.row_number().over(order_by=_LINE).label("place")).where(
        Job.status.in_(WAITING)
    )
    numbered = places.subquery()
    rows = session.execute(select(numbered.c.id, numbered.c.place).where(numbered.c.id.in_(job_ids)))
    return {row.id: row.place for row in rows}
