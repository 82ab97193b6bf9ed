"""Pending jobs as input of the planner: successive windows of each project's line."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, func, literal_column, select, tuple_
from sqlalchemy.orm import Session

from app.domain.lifecycle.retry_policy import CLOCKS_DIFFER
from app.domain.lifecycle.states import JobState
from app.domain.nodes.project_demand import NO_DEMAND, demanding, sharing
from app.domain.scheduling.data_locality import NOT_CACHED, source_keys
from app.domain.scheduling.planning_pass import GROWTH
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Request, request_of
from app.domain.spec.model import JobDocument
from app.models import Job
from app.models.base import database_now
from app.models.queue_order import LINE, WAITING_SINCE
from app.services.nodes import project_demands
from app.services.nodes.data_locality import Caches
from app.services.nodes.device_kinds import began_on_gpus, gpus

_COLUMNS = (
    Job.id,
    Job.attempt,
    Job.project,
    Job.priority,
    Job.queue,
    Job.spec,
    Job.pending_reason,
    Job.excluded_nodes,
    Job.no_room_on,
    Job.max_runtime_seconds,
    Job.elapsed_seconds,
    Job.awaits_node,
    Job.awaits_others,
    WAITING_SINCE.label("since"),
    LINE[0].label("place"),
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PendingJob:
    """A queued job with its last pending reason."""

    job: QueuedJob
    pending_reason: str


def any_pending(session: Session) -> bool:
    return session.execute(_waiting(session, Job.id).limit(1)).first() is not None


def shortest_backoff(session: Session) -> float | None:
    """Seconds until the first of the jobs that rest after a failure may be placed; None if none rests."""
    now = database_now(session)
    resting = (Job.status == JobState.QUEUED, Job.requested.is_(None), Job.not_before_at > now)
    ends = session.scalar(select(func.min(Job.not_before_at)).where(*resting))
    return None if ends is None else max(0.0, (ends - now).total_seconds())


def any_pending_in(session: Session, queues: Sequence[str]) -> bool:
    # Ordered as the index, or PostgreSQL scans the whole table for a row that it expects to be frequent. The empty
    # name makes the condition a list: with a single queue PostgreSQL would drop the constant order. The limit is a
    # literal, since a prepared plan would assume that a parameter is a tenth of the rows.
    first = _waiting(session, Job.id, queues=[*queues, ""]).order_by(Job.queue, Job.status, Job.project)
    return session.execute(first.limit(literal_column("1"))).first() is not None


def with_reservation(session: Session) -> list[PendingJob]:
    """Jobs with a reservation: nodes are being cleared or are reserved for them."""
    waiting = _waiting(session, *_COLUMNS).where(Job.awaits_node != "")
    rows = session.execute(waiting).all()
    return [_of(pending, None) for pending in _read(session, rows, _Shapes(session))] if rows else []


def queued_since(session: Session, moment: datetime, *, caches: Caches | None = None) -> list[QueuedJob]:
    """Jobs without a reservation that were queued after ``moment``; ``caches`` as in ``windows``."""
    waiting = _waiting(session, *_COLUMNS).where(Job.queued_at > moment, Job.awaits_node == "")
    rows = session.execute(waiting).all()
    return [_of(pending, caches).job for pending in _read(session, rows, _Shapes(session))] if rows else []


def windows(
    session: Session, size: int, *, queues: Sequence[str] | None, caches: Caches | None = None
) -> Iterator[list[PendingJob]]:
    """Yield up to ``size`` jobs without a reservation from the front of every project's line, then larger windows.

    ``queues`` None is every queue. A project whose first jobs don't fit does not block the jobs of other projects.
    ``caches`` None ignores data locality.
    """
    shapes = _Shapes(session)
    waiting = _waiting(session, Job.project, queues=queues).where(Job.awaits_node == "").distinct()
    after: dict[str, Any] = dict.fromkeys(session.scalars(waiting.order_by(Job.project)))
    while after:
        found: list[PendingJob] = []
        for project, last in list(after.items()):
            rows = _window(session, project, last, size, queues)
            pending = _read(session, rows, shapes)
            if caches is not None:
                caches.look_up(key for each in pending for key in each.sources)
            found += [_of(each, caches) for each in pending]
            if len(rows) < size:
                del after[project]
            else:
                after[project] = rows[-1]
        yield found
        size *= GROWTH


def _window(
    session: Session, project: str, last: Row[Any] | None, size: int, queues: Sequence[str] | None
) -> Sequence[Row[Any]]:
    query = _waiting(session, *_COLUMNS, queues=queues).where(Job.project == project, Job.awaits_node == "")
    if last is not None:
        query = query.where(tuple_(*LINE) > tuple_(last.place, last.id))
    return session.execute(query.order_by(*LINE).limit(size)).all()


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row with what the planner reads from its document."""

    row: Row[Any]
    document: JobDocument
    request: Request
    sources: Sequence[str]  # keys, as Caches takes them


class _Shapes:
    """What requests depend on besides documents. Equal requests are one object, which the planner evaluates once."""

    def __init__(self, session: Session) -> None:
        self.gpus = gpus(session)
        self._demands = project_demands.of_projects(session)
        self._known: dict[Request, Request] = {}

    def request(self, document: JobDocument, project: str, *, has_gpus: bool) -> Request:
        asked = demanding(request_of(document, has_gpus=has_gpus), self._demands.get(project, NO_DEMAND))
        found = sharing(asked, project)
        return self._known.setdefault(found, found)


def _read(session: Session, rows: Sequence[Row[Any]], shapes: _Shapes) -> list[_Row]:
    found, began = [], began_on_gpus(session, shapes.gpus, [row.id for row in rows if row.attempt])
    for row in rows:
        try:
            document = JobDocument.from_json(row.spec)
            has_gpus = shapes.gpus.for_auto or row.id in began
            request, sources = shapes.request(document, row.project, has_gpus=has_gpus), source_keys(document)
        except (AttributeError, TypeError, ValueError):
            # Submission refuses such documents; should one exist all the same, it must not block other jobs.
            _log.exception("job %s has a document that cannot be planned", row.id)
            continue
        found.append(_Row(row=row, document=document, request=request, sources=sources))
    return found


def _of(pending: _Row, caches: Caches | None) -> PendingJob:
    row, request = pending.row, pending.request
    cached = NOT_CACHED if caches is None or request.is_gang else caches.of(pending.sources)
    job = QueuedJob(
        job_id=row.id,
        priority=row.priority,
        since=row.since.timestamp(),
        request=request,
        queue=row.queue,
        project=row.project,
        is_preemptible=pending.document.scheduling_config.preemptible,
        max_seconds=_at_most(row),
        awaits=(row.awaits_node, *row.awaits_others) if row.awaits_node else (),
        avoids=frozenset(row.excluded_nodes),
        no_room_on=tuple(row.no_room_on),
        cached=cached,
        is_auto=pending.document.resource_config.device_type == "auto",
    )
    return PendingJob(job=job, pending_reason=row.pending_reason)


def _at_most(row: Row[Any]) -> float | None:
    most: int | None = row.max_runtime_seconds
    return None if most is None else max(0.0, float(most - row.elapsed_seconds))


def _waiting(session: Session, *columns: Any, queues: Sequence[str] | None = None) -> Select[Any]:
    """The jobs that may be placed now, of these queues or of all."""
    now = database_now(session)
    query = select(*columns).where(
        Job.status == JobState.QUEUED,
        Job.requested.is_(None),
        # As in `retry_policy.rests`, by the database's clock.
        (Job.not_before_at.is_(None)) | (Job.not_before_at <= now) | (Job.queued_at > now + CLOCKS_DIFFER),
    )
    return query if queues is None else query.where(Job.queue.in_(queues))
