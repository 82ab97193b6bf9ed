"""Queues, and the line of all jobs that wait in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import case, func, literal, select, tuple_
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound, UnknownQueue
from app.domain.lifecycle.states import HELD, JobState
from app.domain.suggestions import did_you_mean
from app.models import Job, Queue
from app.models.queue_order import LINE, served_as_if_since
from app.security.permissions import Caller
from app.services.lifecycle import audit
from app.services.queues import limits, service_order
from app.services.queues.service_order import positions_in
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

WAITING = limits.WAITING
# Changeable settings: API name → column.
CHANGEABLE = {
    "paused": "is_paused",
    "max_running_jobs": "max_running_jobs",
    "max_waiting_jobs": "max_waiting_jobs",
    "weight": "weight",
}
SERVICE = "priority"  # the name of the order of service, in which priority counts among others
ORDERS: Orders = {
    SERVICE: LINE,
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
class WaitingEntry:
    """A waiting job; ``position`` counts from 1 in order of service over all that the caller sees and that can start,
    ``position_in_project`` over those of its project, by age and priority.
    """

    job: Job
    position: int
    position_in_project: int
    waiting_seconds: float
    pending_reason: str


def ensure(session: Session, name: str) -> Queue:
    """The queue, created if it does not exist."""
    queue = session.get(Queue, name)
    if queue is None:
        queue = Queue(name=name)
        session.add(queue)
        session.flush()
    return queue


def create(
    db: Database, caller: Caller, name: str, wanted: Mapping[str, Any], *, on_written: OnWritten = not_stored
) -> QueueSummary:
    """Create a queue with settings of ``CHANGEABLE``. Raises Conflict when it exists."""
    columns = _columns(wanted)
    with db.write() as session:
        if session.get(Queue, name) is not None:
            raise Conflict(f"there is a queue {name} already; change it with PATCH /v1/queues/{name}")
        queue = Queue(name=name, **columns)
        session.add(queue)
        audit.record(
            session, actor=caller.actor, action="queue.create", project=None, target=name, data=_shown(columns)
        )
        session.flush()
        made = QueueSummary(queue=queue, waiting=0, running=0)
        on_written(session, made)
    return made


def change(db: Database, caller: Caller, name: str, wanted: Mapping[str, Any]) -> QueueSummary:
    """Change settings; a limit of None removes it. Effective with the commit, since starting a job locks the queue.

    Running jobs continue. Raises NotFound.
    """
    columns = _columns(wanted)
    with db.write() as session:
        queue = session.get(Queue, name, with_for_update={"key_share": True})
        if queue is None:
            raise _no_queue(session, name)
        changed = {column: value for column, value in columns.items() if getattr(queue, column) != value}
        for column, value in changed.items():
            setattr(queue, column, value)
        if changed:
            audit.record(
                session, actor=caller.actor, action="queue.patch", project=None, target=name, data=_shown(changed)
            )
        session.flush()
        return summary(session, caller, name)


def require(session: Session, name: str, *, field: str) -> Queue:
    """The queue. Raises UnknownQueue, naming those that exist."""
    queue = session.get(Queue, name)
    if queue is None:
        known = session.scalars(select(Queue.name).order_by(Queue.name)).all()
        listed = ", ".join(known[:20]) or "none"
        raise UnknownQueue(f"no queue {name!r}{did_you_mean(name, known)}; known: {listed}", field=field)
    return queue


def require_room(session: Session, name: str, *, field: str) -> None:
    """Raises UnknownQueue, and QuotaExceeded when no more jobs may wait in the queue."""
    limits.refuse_when_full(session, require(session, name, field=field))


def names(db: Database) -> list[str]:
    """Names of all queues."""
    with db.query() as connection:
        return list(connection.scalars(select(Queue.name).order_by(Queue.name)))


def summary(session: Session, caller: Caller, name: str) -> QueueSummary:
    """Summary of one queue. Raises NotFound."""
    found = next((each for each in summaries(session, caller) if each.queue.name == name), None)
    if found is None:
        raise _no_queue(session, name)
    return found


def summaries(session: Session, caller: Caller) -> list[QueueSummary]:
    """All queues with the numbers of the caller's waiting and running jobs."""
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
) -> Page[WaitingEntry]:
    """The caller's waiting jobs, in order of service unless another order is asked for."""
    is_beginning = request.order == SERVICE and request.after is None and queue is None
    served = service_order.ordered(session, caller, first=request.size if is_beginning else None)
    if served is not None and request.order.removeprefix("-") == SERVICE:
        page = service_order.page_in(session, [each for each in served if queue in (None, each.queue)], request)
    else:
        query = service_order.visible(caller)
        query = query if queue is None else query.where(Job.queue == queue)
        page = page_of(session, query, ORDERS, service_order.by_age(request))
    ids = [job.id for job in page.items]
    places = service_order.positions_by_age(session, caller, ids) if served is None else positions_in(served)
    in_projects, reasons = positions(session, ids), pending_reasons(session, page.items)
    entries = [
        WaitingEntry(
            job=job,
            position=places.get(job.id, 0),
            position_in_project=in_projects.get(job.id, 0),
            waiting_seconds=_waited(job, now),
            pending_reason=reasons[job.id],
        )
        for job in page.items
    ]
    return Page(
        items=entries,
        next_after=page.next_after,
        total_count=page.total_count,
        total_count_capped=page.total_count_capped,
    )


def pending_reasons(session: Session, jobs: Sequence[Job]) -> dict[str, str]:
    """Job id → pending reason: that of its queue takes precedence over that of the planner."""
    queued = {job.queue for job in jobs if job.state is JobState.QUEUED}
    held = limits.reasons(session, queued)
    return {
        job.id: held.get(job.queue, job.pending_reason) if job.state is JobState.QUEUED else job.pending_reason
        for job in jobs
    }


def _columns(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {column: wanted[name] for name, column in CHANGEABLE.items() if name in wanted}


def _shown(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: columns[column] for name, column in CHANGEABLE.items() if column in columns}


def _no_queue(session: Session, name: str) -> NotFound:
    known = session.scalars(select(Queue.name).order_by(Queue.name)).all()
    return NotFound(f"no queue {name[:63]!r}{did_you_mean(name, known)}; GET /v1/queues lists them")


def _waited(job: Job, now: datetime) -> float:
    return max(0.0, round((now - (job.queued_at or job.created_at)).total_seconds(), 3))


def positions(session: Session, job_ids: Sequence[str]) -> dict[str, int]:
    """Job id → position in the line of its project, for waiting jobs.

    Jobs still in the preflight are not counted, since some never start. Each has the position that it would have
    if it passed.
    """
    if not job_ids:
        return {}
    can_start = case((Job.status == JobState.QUEUED, 1), else_=0)
    ahead = func.sum(can_start).over(partition_by=Job.project, order_by=LINE) - can_start
    numbered = select(Job.id, ahead.label("ahead")).where(Job.status.in_(WAITING)).subquery()
    rows = session.execute(select(numbered.c.id, numbered.c.ahead).where(numbered.c.id.in_(job_ids)))
    return {row.id: row.ahead + 1 for row in rows}


def place_at(session: Session, job: Job, priority: int) -> int:
    """Position of a waiting job in its project's line at this priority."""
    since = literal(job.queued_at or job.created_at, Job.created_at.type)
    before = tuple_(*LINE) < tuple_(served_as_if_since(since, priority), literal(job.id))
    others = (
        select(func.count())
        .select_from(Job)
        .where(Job.status == JobState.QUEUED, Job.project == job.project, Job.id != job.id, before)
    )
    return (session.scalar(others) or 0) + 1
