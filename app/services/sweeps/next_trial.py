"""The next trial of a sweep: asks the method for values, and stores trial and job.

A trial is made only when it can start soon, so that its values rest on as much as can be known, and the queue is not
flooded with trials.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, InvalidRequest, LimitExceeded, Unauthenticated
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.promotions import waits
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import ANNEAL, FREE, PBT, RANDOM, SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.services.jobs.submission import Checked
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import budget, history, lookup, trials
from app.services.sweeps.forking import trunks
from app.services.sweeps.halting.halted import TrialLoad, load_of
from app.services.sweeps.history import ACTOR
from app.services.sweeps.observed import known_to_method, learns, observations_of
from app.services.sweeps.search.suggestions import SearchUnavailable, Suggestion
from app.services.sweeps.trials import NewTrial

# A trial beyond the one that may wait is made when it is expected to start within this time.
STARTS_SOON_SECONDS = 10.0
STARTS_NOW_SECONDS = 1.0
KEY_ENDED = "the API key that submits its trials is revoked or expired; pause the sweep and resume it with another key"

logger = logging.getLogger(__name__)


class Suggests(Protocol):
    """Values for the next trial, as a pure function of its arguments; None: there are no more."""

    def suggest(
        self, spec: SweepSpec, space: Space, *, number: int, place: int, observations: Sequence[Observation]
    ) -> Suggestion: ...


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What a method is asked by; ``enqueued``: the values are the document's own with this index."""

    seen_seq: int
    place: int
    enqueued: int | None
    observations: Sequence[Observation]


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What the next trial rests on; ``is_fresh``: all of it was read, and not concluded from the trial before."""

    sweep: Sweep
    spec: SweepSpec
    room: TrialLoad
    asked: _Question
    is_fresh: bool = True


class Turn:
    """The trials that one step of a sweep makes: what was read for one serves the next, until another process changes
    the sweep. Not thread-safe.
    """

    def __init__(self) -> None:
        self._next: _Known | None = None

    def take(self) -> _Known | None:
        """What is known after the last trial; None: it is to be read."""
        found, self._next = self._next, None
        return found

    def note(self, known: _Known, stored: Sweep) -> None:
        """A trial was made. Where time, generations, halts or enqueued values matter, the next one reads again."""
        spec = known.spec
        is_timed = spec.budget.max_seconds is not None or spec.budget.max_device_hours is not None
        is_free = spec.budget.parallel_trials == FREE
        if is_timed or is_free or spec.deterministic or waits(spec) or known.asked.enqueued is not None:
            return
        asked = replace(known.asked, place=known.asked.place + 1)
        room = TrialLoad(known.room.alive + 1, known.room.waiting + 1)
        self._next = _Known(sweep=stored, spec=spec, room=room, asked=asked, is_fresh=False)


class _OutOfDate(Exception):
    """What was concluded from the trial before does not hold."""


def launch(plane: ControlPlane, suggestions: Suggests, sweep_id: str, turn: Turn) -> bool:
    """Make the sweep's next trial if it may have one now; whether to ask again at once."""
    known = turn.take()
    try:
        if known is not None:
            return _launch(plane, suggestions, _with_newest(plane, known), turn)
    except _OutOfDate:
        pass
    known = _read(plane, sweep_id)
    return known is not None and _launch(plane, suggestions, known, turn)


def _read(plane: ControlPlane, sweep_id: str) -> _Known | None:
    """None when the sweep may not have another trial now."""
    with plane.db.read() as session:
        sweep = session.get(Sweep, sweep_id)
        if sweep is None or sweep.status not in (SweepState.PENDING, SweepState.RUNNING):
            return None
        spec = SweepSpec.from_json(sweep.spec)
        room = load_of(session, sweep)
        if not _has_room(spec, room):
            return None
        if spec.deterministic and room.alive and first_of_generation(session, sweep, spec) is None:
            return None
        if budget.exhausted(session, sweep, spec, budget.used_of(session, sweep, spec), plane.sweep_limits):
            return None
        return _Known(sweep=sweep, spec=spec, room=room, asked=_question(session, sweep, spec))


def _with_newest(plane: ControlPlane, known: _Known) -> _Known:
    """With what a method that learns is given of the last trial, as it is stored: PostgreSQL sorts the names of values,
    and a replay must ask the same.
    """
    if not learns(known.spec):
        return known
    number, seen = known.sweep.next_number, known.asked.seen_seq
    with plane.db.read() as session:
        last = observations_of(session, known.sweep, known.spec, number=number, seen_seq=seen, since=number - 1)
    return replace(known, asked=replace(known.asked, observations=[*known.asked.observations, *last]))


def _has_room(spec: SweepSpec, room: TrialLoad) -> bool:
    limit = spec.budget.parallel_trials
    return not isinstance(limit, int) or room.alive < limit


def _launch(plane: ControlPlane, suggestions: Suggests, known: _Known, turn: Turn) -> bool:
    sweep, spec = known.sweep, known.spec
    most = budget.most_trials(spec, plane.sweep_limits)
    if not _has_room(spec, known.room) or (most is not None and sweep.next_number >= most):
        return False
    try:
        new = _next(spec, sweep, suggestions, known.asked)
    except SearchUnavailable as error:
        wait(plane, sweep.id, error.message)
        return False
    except BadSpec as error:  # a condition that no draw meets
        _finish(plane, sweep.id, SweepState.FAILED, reason="no values", message=error.message)
        return False
    if new is None:
        _finish_method(plane, sweep, spec)
        return False
    return _begin(plane, known, new, turn)


def first_of_generation(session: Session, sweep: Sweep, spec: SweepSpec) -> Trial | None:
    """Of a deterministic sweep the trial that the next one shares its knowledge with; None: the next one is the first.

    Generations of `parallel_trials` know the same, so that values do not depend on which trial ends first.
    """
    limit = spec.budget.parallel_trials
    place = sweep.next_number % (limit if isinstance(limit, int) else 1)
    return session.get_one(Trial, (sweep.id, sweep.next_number - place)) if spec.deterministic and place else None


def _method_trials(session: Session, sweep: Sweep, spec: SweepSpec) -> int:
    if spec.method.name in (ANNEAL, RANDOM):
        return 0  # which go by numbers, and to count reads every trial
    query = select(func.count()).where(Trial.sweep_id == sweep.id, Trial.source == "method")
    return session.scalar(query) or 0


def _enqueued(session: Session, sweep: Sweep, spec: SweepSpec) -> int | None:
    """The index of the next set of values that the document enqueues; None when all were taken."""
    if not spec.enqueue:
        return None
    query = select(func.count()).where(Trial.sweep_id == sweep.id, Trial.source == "enqueued")
    taken = session.scalar(query) or 0
    return taken if taken < len(spec.enqueue) else None


def _question(session: Session, sweep: Sweep, spec: SweepSpec) -> _Question:
    first = first_of_generation(session, sweep, spec)
    seen = sweep.seq if first is None else first.seen_seq
    return _Question(
        seen_seq=seen,
        place=_method_trials(session, sweep, spec),
        enqueued=_enqueued(session, sweep, spec),
        observations=known_to_method(session, sweep, spec, number=sweep.next_number, seen_seq=seen),
    )


def _next(spec: SweepSpec, sweep: Sweep, suggestions: Suggests, asked: _Question) -> NewTrial | None:
    number, seen = sweep.next_number, asked.seen_seq
    if asked.enqueued is not None:
        values = dict(spec.enqueue[asked.enqueued])
        return NewTrial(number=number, values=values, source="enqueued", seen_seq=seen)
    found = suggestions.suggest(spec, space_of(spec), number=number, place=asked.place, observations=asked.observations)
    if found.values is None:
        return None
    values, took = dict(found.values), found.seconds
    return NewTrial(number=number, values=values, source="method", seen_seq=seen, note=found.note, suggested_in=took)


def space_of(spec: SweepSpec) -> Space:
    return Space.from_json(spec.parameters, spec.require)


def _begin(plane: ControlPlane, known: _Known, new: NewTrial, turn: Turn) -> bool:
    """Make the trial, as a fork of an earlier one where they have steps in common."""
    checked, sweep, spec = None, known.sweep, known.spec
    if known.room.waiting:  # whether it would start soon costs less to ask than what it has in common with others
        with suppress(InvalidRequest, LimitExceeded):  # for `_make` to record
            checked = trials.check(plane, sweep, new)
            if not _starts_soon(known, checked):
                return False
    begins = trunks.begin(plane, sweep, spec, new)
    if isinstance(begins, trunks.Postponed):
        wait(plane, sweep.id, begins.reason)
        return False
    return _make(plane, known, begins, turn, checked if begins == new else None)


def _make(plane: ControlPlane, known: _Known, new: NewTrial, turn: Turn, checked: Checked | None = None) -> bool:
    """``checked``: of this trial, where its document was checked a moment ago."""
    sweep = known.sweep
    try:
        checked = checked or trials.check(plane, sweep, new, estimates_wait=_asks_for_wait(known.spec, known.room))
    except InvalidRequest as error:
        return _refuse(plane, known, new, f"{error.field}: {error.message}" if error.field else error.message)
    except LimitExceeded as error:
        wait(plane, sweep.id, error.message)
        return False
    if not _starts_soon(known, checked):
        return False
    try:
        job = _store(plane, known, new, checked, turn)
    except LimitExceeded as error:
        wait(plane, sweep.id, error.message)
        return False
    except Unauthenticated:
        wait(plane, sweep.id, KEY_ENDED)
        return False
    except InvalidRequest as error:
        if new.fork is not None:  # its checkpoint was deleted meanwhile
            return _make(plane, known, replace(new, fork=None), turn)
        return _refuse(plane, known, new, error.message)
    if job is None:
        return False
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return True


def _asks_for_wait(spec: SweepSpec, room: TrialLoad) -> bool:
    """Whether `_starts_soon` depends on the estimate, which is a large part of what a check costs."""
    return room.waiting == 0 and room.alive > 0 if spec.budget.parallel_trials == FREE else room.waiting > 0


def _starts_soon(known: _Known, checked: Checked) -> bool:
    """Raises _OutOfDate where it would not, and trials of the same step may have begun meanwhile."""
    wait, room = checked.wait_seconds, known.room
    if known.spec.budget.parallel_trials == FREE:
        return room.alive == 0 or (room.waiting == 0 and wait is not None and wait <= STARTS_NOW_SECONDS)
    if room.waiting == 0 or (wait is not None and wait <= STARTS_SOON_SECONDS):
        return True
    if not known.is_fresh:
        raise _OutOfDate
    return False


def _store(plane: ControlPlane, known: _Known, new: NewTrial, checked: Checked, turn: Turn) -> Job | None:
    """None when the sweep has changed so that this is not its next trial any more. Raises _OutOfDate."""
    with plane.db.write() as session:
        sweep = lookup.locked(session, known.sweep.id)
        if not known.is_fresh and (sweep.version, sweep.event_seq) != (known.sweep.version, known.sweep.event_seq):
            raise _OutOfDate
        if not _is_next(sweep, known, new):
            return None
        if sweep.status == SweepState.PENDING:
            history.move(session, sweep, SweepState.RUNNING, actor=ACTOR, reason="first trial")
        job = trials.store(session, plane, sweep, new, checked)
    turn.note(known, sweep)
    return job


def _is_next(sweep: Sweep, known: _Known, new: NewTrial) -> bool:
    """Whether the locked sweep may have this trial now, and its documents, the budget among them, are those read."""
    is_same = (sweep.spec, sweep.base) == (known.sweep.spec, known.sweep.base)
    return is_same and sweep.next_number == new.number and sweep.status in (SweepState.PENDING, SweepState.RUNNING)


def _refuse(plane: ControlPlane, known: _Known, new: NewTrial, reason: str) -> bool:
    with plane.db.write() as session:
        sweep = lookup.locked(session, known.sweep.id)
        if not _is_next(sweep, known, new):
            return False
        if sweep.status == SweepState.PENDING:
            history.move(session, sweep, SweepState.RUNNING, actor=ACTOR, reason="first trial")
        trials.store_refused(session, sweep, new, reason, actor=ACTOR)
    return False  # what follows from it is for the next step to decide


def wait(plane: ControlPlane, sweep_id: str, reason: str) -> None:
    """Note why there is no further trial yet; it is tried again."""
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        if sweep.status in (SweepState.PENDING, SweepState.RUNNING) and sweep.pending_reason != reason:
            sweep.pending_reason = reason
            sweep.mark_changed()
            logger.info("sweep %s makes no further trial yet: %s", sweep_id, reason)


def _finish_method(plane: ControlPlane, sweep: Sweep, spec: SweepSpec) -> None:
    """The method has no further values. Members of a population may still be replaced by forks while any trains."""
    if spec.method.name != PBT:
        message = "every point of the grid was tried"
        _finish(plane, sweep.id, SweepState.COMPLETED, reason="grid", message=message)
        return
    running = select(Trial.number).where(Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING).limit(1)
    with plane.db.read() as session:
        is_over = session.scalar(running) is None
    if is_over:
        message = "every member of the population has trained to its end"
        _finish(plane, sweep.id, SweepState.COMPLETED, reason="population", message=message)


def _finish(plane: ControlPlane, sweep_id: str, ends_as: SweepState, *, reason: str, message: str) -> None:
    """Make no further trial; the next step ends the sweep when none is left."""
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        if sweep.status in (SweepState.PENDING, SweepState.RUNNING):
            sweep.ends_as = ends_as
            history.move(session, sweep, SweepState.FINISHING, actor=ACTOR, reason=reason, message=message)
