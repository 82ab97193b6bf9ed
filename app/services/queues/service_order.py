"""The order of service of all waiting jobs: that of the planner's pass if each job started when it comes first."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, Select, Text, cast, func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Request, request_of
from app.domain.scheduling.serving_order import Ledger, in_serving_order
from app.domain.spec.model import JobDocument
from app.models import Job
from app.models.queue_order import LINE, WAITING_SINCE
from app.security.permissions import Caller
from app.services.nodes.device_kinds import began_on_gpus, gpus
from app.services.queues import limits, project_quotas
from app.services.requests.pagination import Page, PageRequest

# Of longer lines the queue order stands for it: the documents of all jobs would have to be read for every page.
MOST_ORDERED = 2000
MOST_REMEMBERED = 4 * MOST_ORDERED
_COLUMNS: tuple[Any, ...] = (
    Job.id,
    Job.attempt,
    Job.project,
    Job.priority,
    Job.queue,
    Job.status,
    cast(Job.spec, Text).label("spec"),  # parsed only when it is new
    WAITING_SINCE.label("since"),
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A waiting job in the line; ``can_start``: it has passed the preflight."""

    job_id: str
    queue: str
    can_start: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Needs:
    """What the order depends on in a document."""

    request: Request
    is_preemptible: bool


# (digest of the document, whether `auto` is GPUs) → what it needs; threads that read a document twice do no harm.
_known: dict[tuple[bytes, bool], _Needs] = {}


def visible(caller: Caller) -> Select[Any]:
    """The waiting jobs that the caller sees."""
    query = select(Job).where(Job.status.in_(limits.WAITING))
    return query if caller.project is None else query.where(Job.project == caller.project)


def ordered(session: Session, caller: Caller) -> list[Place] | None:
    """The caller's waiting jobs in order of service; None when there are too many."""
    # Asked first: with a long line, the documents would be read for nothing.
    if session.scalar(visible(caller).with_only_columns(Job.id).offset(MOST_ORDERED).limit(1)) is not None:
        return None
    rows = session.execute(visible(caller).with_only_columns(*_COLUMNS).order_by(*LINE)).all()
    seen = gpus(session)
    began = began_on_gpus(session, seen, [row.id for row in rows if row.attempt])
    waiting = [job for row in rows if (job := _as_planned(row, on_gpus=seen.for_auto or row.id in began)) is not None]
    ledger = Ledger(project_quotas.accounts(session, limits.rooms(session)))
    unplanned, found = {row.id: row for row in rows}, []
    for job in in_serving_order(waiting, ledger):
        ledger.count(job, job.request.amount)
        found.append(_place(unplanned.pop(job.job_id)))
    return found + [_place(row) for row in unplanned.values()]


def positions_in(line: Sequence[Place]) -> dict[str, int]:
    """Job id → position from 1. As in ``queues.positions``, jobs in the preflight have one but do not count."""
    found, ahead = {}, 0
    for place in line:
        found[place.job_id] = ahead + 1
        ahead += place.can_start
    return found


def positions_by_age(session: Session, caller: Caller, job_ids: Sequence[str]) -> dict[str, int]:
    """The same by queue order alone, for lines that are too long."""
    numbered = visible(caller).with_only_columns(Job.id, func.row_number().over(order_by=LINE).label("number"))
    rows = numbered.subquery()
    return {row.id: row.number for row in session.execute(select(rows).where(rows.c.id.in_(job_ids)))}


def page_in(session: Session, line: Sequence[Place], request: PageRequest) -> Page[Job]:
    """One page of the line. It begins after the last job of the page before; where that one has started since, at its
    place.
    """
    ids = [place.job_id for place in line]
    if request.order.startswith("-"):
        ids.reverse()
    places = {job_id: place for place, job_id in enumerate(ids)}
    begin = 0
    if request.after is not None and len(request.after) == 3:
        _, place, last = request.after
        begin = places[last] + 1 if last in places else int(place)
    shown = ids[begin : begin + request.size]
    more = len(ids) > begin + len(shown)
    after = ("served", begin + len(shown) - 1, shown[-1]) if shown and more else None
    jobs = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(shown)))}
    # Concurrently deleted jobs are left out.
    items = [jobs[job_id] for job_id in shown if job_id in jobs]
    return Page(items=items, next_after=after, total_count=len(ids), total_count_capped=False)


def by_age(request: PageRequest) -> PageRequest:
    """The request for a line that has become too long since its first page: it begins anew."""
    return replace(request, after=None) if request.after is not None and len(request.after) == 3 else request


def _place(row: Row[Any]) -> Place:
    return Place(job_id=row.id, queue=row.queue, can_start=row.status == JobState.QUEUED)


def _as_planned(row: Row[Any], *, on_gpus: bool) -> QueuedJob | None:
    """The job as the planner sees it; None for a malformed document, which the planner skips."""
    needs = _needs_of(row.spec, on_gpus=on_gpus)
    if needs is None:
        return None
    return QueuedJob(
        job_id=row.id,
        priority=row.priority,
        since=row.since.timestamp(),
        request=needs.request,
        queue=row.queue,
        project=row.project,
        is_preemptible=needs.is_preemptible,
    )


def _needs_of(spec: str, *, on_gpus: bool) -> _Needs | None:
    key = hashlib.blake2b(spec.encode(), digest_size=16).digest(), on_gpus
    needs = _known.get(key)
    if needs is None:
        needs = _read(spec, on_gpus=on_gpus)
        if needs is not None:
            if len(_known) >= MOST_REMEMBERED:
                _known.clear()
            _known[key] = needs
    return needs


def _read(spec: str, *, on_gpus: bool) -> _Needs | None:
    try:
        document = JobDocument.from_json(json.loads(spec))
        request = request_of(document, has_gpus=on_gpus)
        return _Needs(request=request, is_preemptible=document.scheduling_config.preemptible)
    except (AttributeError, TypeError, ValueError):
        # As in the planner's lines: one such document must not make all the others unreadable.
        _log.exception("a waiting job has a document that cannot be planned")
        return None
