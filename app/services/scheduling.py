"""Planning and announcing: from QUEUED to a dispatched attempt, all of it safe to do twice."""

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, literal_column, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.domain.errors import StaleJob
from app.domain.ids import new_id
from app.domain.job_state import JobState
from app.domain.planning import Placement, QueuedJob, plan
from app.domain.resources import NodeCapacity, request_of
from app.extensions import Database
from app.models import Attempt, Job, Lease, Node, ProcessBeat, Reservation
from app.models.base import database_now, utc_now
from app.services import lifecycle, nodes, queue_limits

_log = logging.getLogger(__name__)

PLANNER = "planner"
_EXPLAINED_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class Dispatched:
    """An attempt that a node has to be told of."""

    job_id: str
    attempt: int
    node: str
    device_type: str
    priority: int


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Who plans; ``counter`` standing still means that the holder is gone."""

    holder: str
    counter: int


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    """A queued job, and what it was last told about why it waits."""

    job: QueuedJob
    pending_reason: str


def plan_once(db: Database, *, actor: str = "planner", page_size: int = 500) -> list[Dispatched]:
    """One pass: read a snapshot, `page_size` jobs at a time, ask the planner, apply each placement by itself.

    Jobs of queues that are paused or full are not even read: however many they are, they cost a look next to nothing.
    """
    with db.read() as session:
        if session.execute(_waiting(session, Job.id).limit(1)).first() is None:
            return []  # most looks of an idle system end here, and cost it next to nothing
        room = queue_limits.rooms(session)
        served = queue_limits.open_queues(session, room) if room else None
        if served is not None and not _anybody_waits(session, served):
            return []
        with closing(_queued_pages(session, page_size, queues=served)) as pages:
            placements, reasons = _decide(pages, nodes.capacities(session), room, served)
    dispatched = [d for placement in placements if (d := _place(db, placement, actor)) is not None]
    _explain(db, reasons)
    return dispatched


def unannounced(db: Database, *, older_than_seconds: float) -> list[Dispatched]:
    """Dispatched attempts that nobody claimed within the time; they count as announced again by this call."""
    cutoff = utc_now() - timedelta(seconds=older_than_seconds)
    with db.write() as session:
        rows = session.execute(
            select(Attempt, Lease.node, Job.priority)
            .join(Lease, (Lease.job_id == Attempt.job_id) & (Lease.attempt == Attempt.number))
            .join(Job, Job.id == Attempt.job_id)
            .where(Lease.released_at.is_(None), Lease.counter == 0, Attempt.announced_at < cutoff)
        ).all()
        for attempt, _, _ in rows:
            attempt.announced_at = utc_now()
        return [
            Dispatched(job_id=a.job_id, attempt=a.number, node=node, device_type=a.device_type, priority=priority)
            for a, node, priority in rows
        ]


def dispatched_to(db: Database, node: str) -> list[tuple[str, int]]:
    """(job, attempt) that wait for this node to claim them."""
    with db.read() as session:
        rows = session.execute(
            select(Lease.job_id, Lease.attempt)
            .where(Lease.node == node, Lease.released_at.is_(None), Lease.counter == 0)
            .order_by(Lease.id)
        )
        return [(row.job_id, row.attempt) for row in rows]


def hold_planner(db: Database, me: str, *, replacing: Holding | None = None) -> Holding:
    """Stay or become the planner; returns who is. ``replacing`` is a holder that the caller has found dead."""
    with db.write() as session:
        row = session.get(ProcessBeat, PLANNER, with_for_update=True)
        if row is None:
            row = ProcessBeat(name=PLANNER, kind="planner", holder=me, counter=0)
            session.add(row)
        if row.holder == me or (replacing is not None and replacing == Holding(holder=row.holder, counter=row.counter)):
            row.holder = me
            row.counter += 1
            row.last_seen_at = utc_now()
        return Holding(holder=row.holder, counter=row.counter)


def beat(db: Database, name: str, holder: str) -> None:
    """A coordinator's sign of life."""
    with db.write() as session:
        row = session.get(ProcessBeat, name)
        if row is None:
            row = ProcessBeat(name=name, kind="coordinator", counter=0)
            session.add(row)
        row.holder = holder
        row.counter += 1
        row.last_seen_at = utc_now()


def _decide(
    pages: Iterable[list[_Waiting]],
    capacities: Sequence[NodeCapacity],
    room: Mapping[str, int],
    served: Sequence[str] | None,
) -> tuple[list[Placement], dict[str, str]]:
    """Who starts where, and what is new to the others about why they wait; ``served`` None is every queue."""
    placements: list[Placement] = []
    reasons: dict[str, str] = {}
    for page in pages:
        decided = plan([waiting.job for waiting in page], capacities, room)
        placements += decided.placements
        known = {waiting.job.job_id: waiting.pending_reason for waiting in page}
        reasons |= {k: v for k, v in decided.pending_reasons.items() if known[k] != v}
        capacities, room = decided.nodes, decided.room
        if not any(node.free for node in capacities):
            break  # whoever comes later in the line gets nothing either
        if served is not None and not any(room.get(queue, 1) > 0 for queue in served):
            break
    return placements, reasons


def _queued_pages(
    session: Session, size: int, *, queues: Sequence[str] | None
) -> Generator[list[_Waiting], None, None]:
    """Who waits, in the order of service; read on only while the caller asks for more."""
    has_gpus = nodes.has_gpus(session)
    waiting = _waiting(session, Job.id, Job.priority, Job.queue, Job.spec, Job.pending_reason, queues=queues)
    in_order = waiting.order_by(Job.priority.desc(), Job.queued_at, Job.id)
    position = 0
    # Closed with the generator: PostgreSQL keeps a cursor for whoever has not read to the end.
    with session.execute(in_order.execution_options(yield_per=size)) as rows:
        for partition in rows.partitions(size):
            page = []
            for row in partition:
                position += 1
                try:
                    request = request_of(row.spec, has_gpus=has_gpus)
                except (KeyError, TypeError, ValueError):
                    # Submit lets no such document in; should one be there all the same, others must not wait for it.
                    _log.exception("job %s has a document that cannot be planned", row.id)
                    continue
                job = QueuedJob(
                    job_id=row.id, priority=row.priority, position=position, request=request, queue=row.queue
                )
                page.append(_Waiting(job=job, pending_reason=row.pending_reason))
            yield page


def _anybody_waits(session: Session, queues: Sequence[str]) -> bool:
    # In the order of the index, or PostgreSQL goes through the whole table for one row that it takes to be frequent.
    # The name that no queue has makes it a list: with a single queue the order would be constant, and forgotten. The
    # limit is no parameter, of which a prepared plan would assume that it is a tenth of the rows.
    first = _waiting(session, Job.id, queues=[*queues, ""]).order_by(Job.queue, Job.status, Job.project)
    return session.execute(first.limit(literal_column("1"))).first() is not None


def _waiting(session: Session, *columns: Any, queues: Sequence[str] | None = None) -> Select[Any]:
    """The jobs that may be placed now, of these queues or of all."""
    query = select(*columns).where(
        Job.status == JobState.QUEUED,
        Job.requested.is_(None),
        (Job.not_before_at.is_(None)) | (Job.not_before_at <= database_now(session)),
    )
    return query if queues is None else query.where(Job.queue.in_(queues))


def _place(db: Database, placement: Placement, actor: str) -> Dispatched | None:
    try:
        with db.write() as session:
            return _apply(session, placement, actor)
    except (IntegrityError, StaleJob):
        # Somebody else placed the job or took a device: the unique keys refused ours, and the next pass looks anew.
        return None


def _apply(session: Session, placement: Placement, actor: str) -> Dispatched | None:
    job = lifecycle.load_for_change(session, placement.job_id)
    if job.state is not JobState.QUEUED or job.requested is not None:
        return None
    if not queue_limits.lock_open(session, job.queue):
        return None  # paused or filled since the look
    # Shared lock: whoever drains the node now either sees this attempt or is seen here.
    node = session.get(Node, placement.node, with_for_update={"read": True}, populate_existing=True)
    if node is None or node.state != "ready":
        return None
    number, now = job.attempt + 1, utc_now()
    indices, device_type = [d.index for d in placement.devices], placement.devices[0].type
    queue_limits.count_wait(session, job, now)
    lifecycle.transition(
        session, job, JobState.SCHEDULING, actor=actor, message=f"attempt {number} on {placement.node}",
        attempt=number, node_names=[placement.node], pending_reason="", not_before_at=None,
    )  # fmt: skip
    session.add(
        Attempt(
            job_id=job.id, number=number, fence=job.fence, node_names=[placement.node], device_indices=[indices],
            device_type=device_type, announced_at=now, start_type="init_or_rescheduled", start_step=job.current_step,
        )
    )  # fmt: skip
    session.add(
        Lease(id=new_id("lease"), job_id=job.id, attempt=number, fence=job.fence, node=placement.node, created_at=now)
    )
    session.add_all(Reservation(node=placement.node, device_index=i, job_id=job.id, attempt=number) for i in indices)
    session.flush()
    return Dispatched(
        job_id=job.id, attempt=number, node=placement.node, device_type=device_type, priority=job.priority
    )


def _explain(db: Database, reasons: dict[str, str]) -> None:
    # In the order of ids and in small transactions: the mirror locks many jobs too, and cancels must not wait long.
    for batch in _batches(sorted(reasons.items()), _EXPLAINED_AT_ONCE):
        with db.write() as session:
            for job_id, reason in batch:
                session.execute(
                    update(Job)
                    .where(Job.id == job_id, Job.status == JobState.QUEUED)
                    .values(pending_reason=reason)
                    .execution_options(synchronize_session=False)
                )


def _batches(items: list[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    return (items[start : start + size] for start in range(0, len(items), size))
