"""Start estimates for pending jobs, from the expected ends of the running ones. None: unknown."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.retry_policy import rests
from app.domain.lifecycle.states import HELD
from app.domain.nodes.project_demand import NO_DEMAND, demanding, sharing
from app.domain.scheduling.queue_order import position_key
from app.domain.scheduling.resources import Request, request_of
from app.domain.scheduling.roles.held import held_on
from app.domain.scheduling.start_estimates import LOOK_AHEAD, DeviceRelease, starts
from app.domain.spec.model import JobDocument
from app.models import Attempt, Job, Reservation
from app.models.base import utc_now
from app.models.queue_order import LINE, ahead_of_new
from app.services.nodes import device_kinds, project_demands, registry
from app.services.queues import limits, project_quotas, queues
from app.services.requests.short_cache import ShortCache

# Time for admission and the planner's next pass, which every job has to wait for.
PASS_SECONDS = 1.0
REMEMBERED_SECONDS = 1.0
SHARED_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Front:
    """The jobs at the front of the line, and the estimated starts of those where it is known."""

    ids: frozenset[str]
    expected: Mapping[str, datetime]


class Estimates:
    """Estimates for new jobs; caches for a moment that a line is too long for one. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._long_at: dict[int, float] = {}  # priority → when the line ahead of it was found too long

    def of_new(
        self, session: Session, request: Request, *, queue: str, priority: int, project: str, preemptible: bool
    ) -> float | None:
        """Seconds that a job submitted now would wait; None when unknown."""
        found = self.of_several(
            session, request, 1, queue=queue, priority=priority, project=project, preemptible=preemptible
        )
        return found[0]

    def of_several(
        self,
        session: Session,
        request: Request,
        count: int,
        *,
        queue: str,
        priority: int,
        project: str,
        preemptible: bool,
    ) -> list[float | None]:
        """As `of_new`, of equal jobs that are submitted one after the other: of ``count``, or of those before which a
        limit has to be looked at again, at least one.
        """
        now = self._clock()
        if now - self._long_at.get(priority, -math.inf) <= REMEMBERED_SECONDS:
            return [None]
        ahead = (Job.status.in_(queues.WAITING), ahead_of_new(utc_now(), priority))
        # Counted before rows are read, so that with a long line a submission pays only for this query.
        waiting = len(session.scalars(select(Job.id).where(*ahead).limit(LOOK_AHEAD)).all())
        if waiting == LOOK_AHEAD:
            self._long_at[priority] = now
            return [None]
        if project_quotas.refuses(session, project, request, preemptible=preemptible):
            return [None]
        room = dict(limits.rooms(session))
        ready = [job for job in _first(session, *ahead) if not _rests(job, utc_now())]
        line = _served(ready, room)
        if room.get(queue, 1) <= 0:
            return [None]
        is_limited = queue in room or project_quotas.has_one(session, project)
        equal = [request] * (1 if is_limited else min(count, LOOK_AHEAD - waiting))
        found = starts([*_requests(session, line), *equal], registry.capacities(session), _endings(session))
        return [None if each is None else round(max(each, PASS_SECONDS), 1) for each in found[-len(equal) :]]


def of_waiting(session: Session, places: Mapping[str, int], shared: ShortCache | None = None) -> Mapping[str, datetime]:
    """Job → estimated start, for the jobs (given with their positions) where it is known.

    Readers share by ``shared`` what was computed within a second. A job that has joined the line since is not missing,
    unless the line is too long for estimates of all.
    """
    near = {job_id for job_id, place in places.items() if place <= LOOK_AHEAD}
    if not near:
        return {}
    if shared is None:
        return of_front(session).expected
    known = shared_front(session, shared, SHARED_SECONDS)
    is_whole = near <= known.ids or len(known.ids) == LOOK_AHEAD
    return (known if is_whole else shared_front(session, shared, 0.0)).expected


def of_front(session: Session) -> Front:
    """The same for all jobs at the front of the line."""
    first = _first(session, Job.status.in_(queues.WAITING))
    ids = frozenset(job.id for job in first)
    return Front(ids=ids, expected=_expected(session, first, ids))


def shared_front(session: Session, shared: ShortCache, seconds: float) -> Front:
    """`of_front`, of which all readers of a process share one that is at most so old."""
    return shared.get(("front",), seconds, lambda: of_front(session))


def of_moved(session: Session, job: Job, place: int, *, priority: int) -> datetime | None:
    """The same for one pending job at a hypothetical position in the line."""
    if place > LOOK_AHEAD:
        return None
    since = (job.queued_at or job.created_at).timestamp()
    line = [other for other in _first(session, Job.status.in_(queues.WAITING)) if other.id != job.id]
    before = [other for other in line if _stands(other) < position_key(since, priority, job.id)]
    line = [*before, job, *line[len(before) :]]
    return _expected(session, line[:LOOK_AHEAD], (job.id,)).get(job.id)


def _stands(job: Job) -> tuple[float, str]:
    return position_key((job.queued_at or job.created_at).timestamp(), job.priority, job.id)


def _expected(session: Session, first: Sequence[Job], wanted: Collection[str]) -> dict[str, datetime]:
    now = utc_now()
    # The planner skips jobs that back off after a failure; the others behind them come first.
    line = _served(sorted(first, key=lambda job: _rests(job, now)), dict(limits.rooms(session)))
    expected = starts(_requests(session, line), registry.capacities(session), _endings(session))
    found = {}
    for job, seconds in zip(line, expected, strict=True):
        if seconds is not None and job.id in wanted:
            soonest = now + timedelta(seconds=max(seconds, PASS_SECONDS))
            found[job.id] = max(soonest, job.not_before_at or soonest)
    return found


def _first(session: Session, *which: ColumnElement[bool]) -> Sequence[Job]:
    query = select(Job).where(*which, Job.requested.is_(None)).order_by(*LINE)
    return session.scalars(query.limit(LOOK_AHEAD)).all()


def _rests(job: Job, now: datetime) -> bool:
    return rests(job.not_before_at, job.queued_at, now)


def _served(line: Sequence[Job], room: dict[str, int]) -> list[Job]:
    """The jobs whose queue has room for them; when a full queue will have room is unknown."""
    found = []
    for job in line:
        if room.get(job.queue, 1) > 0:
            found.append(job)
            if job.queue in room:
                room[job.queue] -= 1
    return found


def _requests(session: Session, line: Sequence[Job]) -> list[Request]:
    if not line:
        return []
    seen = device_kinds.gpus(session)
    began = device_kinds.began_on_gpus(session, seen, [job.id for job in line if job.attempt])
    demands = project_demands.of_projects(session)
    return [
        sharing(demanding(asked, demands.get(job.project, NO_DEMAND)), job.project)
        for job in line
        for asked in (request_of(job.document, has_gpus=seen.for_auto or job.id in began),)
    ]


def _endings(session: Session) -> list[DeviceRelease]:
    rows = session.execute(
        select(
            Reservation.node,
            Reservation.device_index,
            Reservation.share,
            Job.id,
            Job.eta_seconds,
            Job.spec,
            Attempt.instances,
        )
        .join(Job, Job.id == Reservation.job_id)
        .join(Attempt, (Attempt.job_id == Reservation.job_id) & (Attempt.number == Reservation.attempt))
        .where(Job.eta_seconds.is_not(None), Job.status.in_(HELD))
    )
    held: dict[tuple[str, str], DeviceRelease] = {}
    for node, index, share, job_id, eta_seconds, spec, instances in rows:
        known = held.get((node, job_id))
        held[node, job_id] = DeviceRelease(
            seconds=float(eta_seconds),
            node=node,
            devices=(known.devices if known else frozenset()) | {index},
            share=share,
            quantities=held_on(node, request_of(JobDocument.from_json(spec), has_gpus=False), instances),
        )
    return list(held.values())
