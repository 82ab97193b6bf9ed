"""The order of service of all waiting jobs: that of the planner's pass if each job started when it comes first."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from sqlalchemy import Row, Select, Text, cast, func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Request, request_of
from app.domain.scheduling.serving_order import PassAccounts, in_serving_order
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
MOST_NAMED = 500  # jobs in one query; of more the documents of all are read
_COLUMNS: tuple[Any, ...] = (
    Job.id,
    Job.attempt,
    Job.project,
    Job.priority,
    Job.queue,
    Job.status,
    Job.version,  # rises with every change of the document, which is read only when it does
    WAITING_SINCE.label("since"),
)
_DOCUMENT: tuple[Any, ...] = (Job.id, cast(Job.spec, Text).label("spec"))
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePosition:
    """A waiting job in the line; ``can_start``: it has passed the preflight."""

    job_id: str
    queue: str
    can_start: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Needs:
    """What the order depends on in a document."""

    request: Request
    is_preemptible: bool


@dataclass(frozen=True, slots=True)
class _WaitingJob:
    """A job as it was read; ``planned`` is None for a malformed document, which the planner skips."""

    row: tuple[Any, ...]
    on_gpus: bool
    place: QueuePosition
    planned: QueuedJob | None

    def is_of(self, row: Row[Any], on_gpus: bool) -> bool:  # noqa: FBT001 – the two that it was read of
        return self.on_gpus == on_gpus and self.row == tuple(row)


# (digest of the document, whether `auto` is GPUs) → what it needs; threads that read a document twice do no harm.
_known: dict[tuple[bytes, bool], _Needs] = {}
# Job id → what its row said when it was read last: most jobs of a long line are as they were for the page before.
_seen_before: dict[str, _WaitingJob] = {}


def visible(caller: Caller) -> Select[Any]:
    """The waiting jobs that the caller sees."""
    query = select(Job).where(Job.status.in_(limits.WAITING))
    return query if caller.project is None else query.where(Job.project == caller.project)


def ordered(session: Session, caller: Caller, *, first: int | None = None) -> list[QueuePosition] | None:
    """The caller's waiting jobs in order of service; None when there are too many. ``first``: only so many are in
    order, and the others behind them as they were queued.
    """
    # Asked first: with a long line, the documents would be read for nothing.
    if session.scalar(visible(caller).with_only_columns(Job.id).offset(MOST_ORDERED).limit(1)) is not None:
        return None
    read = _in_queue_order(session, caller)
    waiting = [each.planned for each in read if each.planned is not None]
    ledger = PassAccounts(project_quotas.accounts(session, limits.rooms(session)))
    unplanned, found = {each.place.job_id: each.place for each in read}, []
    for job in islice(in_serving_order(waiting, ledger), first):
        ledger.count(job, job.request.amount)
        found.append(unplanned.pop(job.job_id))
    return [*found, *unplanned.values()]


def _in_queue_order(session: Session, caller: Caller) -> list[_WaitingJob]:
    rows = session.execute(visible(caller).with_only_columns(*_COLUMNS).order_by(*LINE)).all()
    seen = gpus(session)
    began = began_on_gpus(session, seen, [row.id for row in rows if row.attempt])
    asked = {row.id: (row, seen.for_auto or row.id in began) for row in rows}
    # Looked up once: another thread may make room among them meanwhile.
    found = {job_id: each for job_id in asked if (each := _seen_before.get(job_id)) is not None}
    changed = [job_id for job_id, row in asked.items() if job_id not in found or not found[job_id].is_of(*row)]
    documents = _documents(session, caller, changed)
    read = {
        job_id: _waiting_job(asked[job_id][0], spec, on_gpus=asked[job_id][1]) for job_id, spec in documents.items()
    }
    if len(_seen_before) + len(read) > MOST_REMEMBERED:
        _seen_before.clear()
    _seen_before.update(read)
    known = {**found, **read}
    # What could not be read has left the line since.
    left = set(changed) - set(read)
    return [known[job_id] for job_id in asked if job_id not in left]


def _documents(session: Session, caller: Caller, job_ids: Sequence[str]) -> dict[str, str]:
    if not job_ids:
        return {}
    query = visible(caller).with_only_columns(*_DOCUMENT)
    query = query if len(job_ids) > MOST_NAMED else query.where(Job.id.in_(job_ids))
    wanted = set(job_ids)
    return {row.id: row.spec for row in session.execute(query) if row.id in wanted}


def positions_in(line: Sequence[QueuePosition]) -> dict[str, int]:
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


def page_in(session: Session, line: Sequence[QueuePosition], request: PageRequest) -> Page[Job]:
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


def _waiting_job(row: Row[Any], spec: str, *, on_gpus: bool) -> _WaitingJob:
    place = QueuePosition(job_id=row.id, queue=row.queue, can_start=row.status == JobState.QUEUED)
    needs = _needs_of(spec, on_gpus=on_gpus)
    if needs is None:
        return _WaitingJob(tuple(row), on_gpus, place, None)
    planned = QueuedJob(
        job_id=row.id,
        priority=row.priority,
        since=row.since.timestamp(),
        request=needs.request,
        queue=row.queue,
        project=row.project,
        is_preemptible=needs.is_preemptible,
    )
    return _WaitingJob(tuple(row), on_gpus, place, planned)


def _needs_of(spec: str, *, on_gpus: bool) -> _Needs | None:
    key = hashlib.blake2b(spec.encode(), digest_size=16).digest(), on_gpus
    needs = _known.get(key)
    if needs is None:
        needs = _needs_in(spec, on_gpus=on_gpus)
        if needs is not None:
            if len(_known) >= MOST_REMEMBERED:
                _known.clear()
            _known[key] = needs
    return needs


def _needs_in(spec: str, *, on_gpus: bool) -> _Needs | None:
    try:
        document = JobDocument.from_json(json.loads(spec))
        request = request_of(document, has_gpus=on_gpus)
        return _Needs(request=request, is_preemptible=document.scheduling_config.preemptible)
    except (AttributeError, TypeError, ValueError):
        # As in the planner's lines: one such document must not make all the others unreadable.
        _log.exception("a waiting job has a document that cannot be planned")
        return None
