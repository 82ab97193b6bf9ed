"""The jobs that wait for devices, as the planner wants them: a window of each project's line after the other."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, literal_column, select, tuple_
from sqlalchemy.orm import Session

from app.domain.lifecycle.retry_policy import CLOCKS_DIFFER
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.data_locality import NOWHERE
from app.domain.scheduling.planning_pass import GROWTH
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Request, request_of
from app.models import Job
from app.models.base import database_now
from app.models.job_line import LINE, WAITING_SINCE
from app.services.nodes import registry
from app.services.nodes.data_locality import Caches
from app.services.queues import project_quotas

_COLUMNS = (
    Job.id, Job.project, Job.priority, Job.queue, Job.spec, Job.pending_reason, Job.excluded_nodes, Job.no_room_on,
    Job.max_runtime_seconds, Job.elapsed_seconds, Job.awaits_node, Job.awaits_others, WAITING_SINCE.label("since"),
    LINE[0].label("place"),
)  # fmt: skip
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A queued job, and what it was last told about why it waits."""

    job: QueuedJob
    pending_reason: str


def anybody(session: Session) -> bool:
    return session.execute(_waiting(session, Job.id).limit(1)).first() is not None


def anybody_of(session: Session, queues: Sequence[str]) -> bool:
    # In the order of the index, or PostgreSQL goes through the whole table for one row that it takes to be frequent.
    # The name that no queue has makes it a list: with a single queue the order would be constant, and forgotten. The
    # limit is no parameter, of which a prepared plan would assume that it is a tenth of the rows.
    first = _waiting(session, Job.id, queues=[*queues, ""]).order_by(Job.queue, Job.status, Job.project)
    return session.execute(first.limit(literal_column("1"))).first() is not None


def promised(session: Session) -> list[Waiting]:
    """Those for whom nodes are cleared or kept."""
    waiting = _waiting(session, *_COLUMNS).where(Job.awaits_node != "")
    has_gpus = registry.has_gpus(session)
    return [each for row in session.execute(waiting) if (each := _of(row, {}, None, has_gpus=has_gpus)) is not None]


def queued_since(session: Session, moment: datetime, *, caches: Caches | None = None) -> list[QueuedJob]:
    """Those that began to wait later than that, and to whom nothing is promised; ``caches`` as below."""
    waiting = _waiting(session, *_COLUMNS).where(Job.queued_at > moment, Job.awaits_node == "")
    rows, has_gpus = session.execute(waiting).all(), registry.has_gpus(session)
    return [found.job for row in rows if (found := _of(row, {}, caches, has_gpus=has_gpus)) is not None]


def windows(
    session: Session, size: int, *, queues: Sequence[str] | None, caches: Caches | None = None
) -> Iterator[list[Waiting]]:
    """Up to ``size`` other jobs of every project, the first of its line; then more, as long as the caller asks.

    ``queues`` None is every queue. A project whose first jobs don't fit keeps nobody else's from being looked at.
    ``caches`` None: it does not matter where what they read is cached.
    """
    has_gpus = registry.has_gpus(session)
    shapes: dict[Request, Request] = {}
    waiting = _waiting(session, Job.project, queues=queues).where(Job.awaits_node == "").distinct()
    after: dict[str, Any] = dict.fromkeys(session.scalars(waiting.order_by(Job.project)))
    while after:
        found: list[Waiting] = []
        for project, last in list(after.items()):
            rows = _window(session, project, last, size, queues)
            if caches is not None:
                caches.look_up([row.spec for row in rows])
            found += [each for row in rows if (each := _of(row, shapes, caches, has_gpus=has_gpus)) is not None]
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


def _of(row: Row[Any], shapes: dict[Request, Request], caches: Caches | None, *, has_gpus: bool) -> Waiting | None:
    """``shapes``: one request for all jobs that ask for the same, which the planner then looks at once."""
    try:
        request = request_of(row.spec, has_gpus=has_gpus)
        request = shapes.setdefault(request, request)
        cached = NOWHERE if caches is None or request.is_gang else caches.of(row.spec)
    except (KeyError, TypeError, ValueError):
        # Submit lets no such document in; should one be there all the same, others must not wait for it.
        _log.exception("job %s has a document that cannot be planned", row.id)
        return None
    job = QueuedJob(
        job_id=row.id, priority=row.priority, since=row.since.timestamp(), request=request, queue=row.queue,
        project=row.project, is_preemptible=project_quotas.is_preemptible(row.spec),
        at_most_seconds=_at_most(row), awaits=(row.awaits_node, *row.awaits_others) if row.awaits_node else (),
        avoids=frozenset(row.excluded_nodes), no_room_on=tuple(row.no_room_on), cached=cached,
    )  # fmt: skip
    return Waiting(job=job, pending_reason=row.pending_reason)


def _at_most(row: Row[Any]) -> float | None:
    most: int | None = row.max_runtime_seconds
    return None if most is None else max(0.0, float(most - row.elapsed_seconds))


def _waiting(session: Session, *columns: Any, queues: Sequence[str] | None = None) -> Select[Any]:
    """The jobs that may be placed now, of these queues or of all."""
    now = database_now(session)
    query = select(*columns).where(
        Job.status == JobState.QUEUED,
        Job.requested.is_(None),
        # As in `retry.rests`, by the database's clock.
        (Job.not_before_at.is_(None)) | (Job.not_before_at <= now) | (Job.queued_at > now + CLOCKS_DIFFER),
    )
    return query if queues is None else query.where(Job.queue.in_(queues))
