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
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import FREE, PBT, SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.services.jobs.submission import Checked
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import budget, history, lookup, trials
from app.services.sweeps.forking import trunks
from app.services.sweeps.halting.halted import Load, load_of
from app.services.sweeps.history import ACTOR
from app.services.sweeps.observed import known_to_method
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


def launch(plane: ControlPlane, suggestions: Suggests, sweep_id: str) -> bool:
    """Make the sweep's next trial if it may have one now; whether to ask again at once."""
    with plane.db.read() as session:
        sweep = session.get(Sweep, sweep_id)
        if sweep is None or sweep.status not in (SweepState.PENDING, SweepState.RUNNING):
            return False
        spec = SweepSpec.from_json(sweep.spec)
        room = _room(session, sweep, spec)
        if room is None:
            return False
        if budget.exhausted(session, sweep, spec, budget.used_of(session, sweep, spec), plane.sweep_limits):
            return False
        asked = _question(session, sweep, spec)
    try:
        new = _next(spec, sweep, suggestions, asked)
    except SearchUnavailable as error:
        wait(plane, sweep_id, error.message)
        return False
    except BadSpec as error:  # a condition that no draw meets
        _finish(plane, sweep_id, SweepState.FAILED, reason="no values", message=error.message)
        return False
    if new is None:
        _finish_method(plane, sweep, spec)
        return False
    return _begin(plane, sweep, spec, new, room)


def _room(session: Session, sweep: Sweep, spec: SweepSpec) -> Load | None:
    """None when there is no room for another trial."""
    load, limit = load_of(session, sweep), spec.budget.parallel_trials
    if isinstance(limit, int) and load.alive >= limit:
        return None
    if spec.deterministic and load.alive and first_of_generation(session, sweep, spec) is None:
        return None
    return load


def first_of_generation(session: Session, sweep: Sweep, spec: SweepSpec) -> Trial | None:
    """Of a deterministic sweep the trial that the next one shares its knowledge with; None: the next one is the first.

    Generations of `parallel_trials` know the same, so that values do not depend on which trial ends first.
    """
    limit = spec.budget.parallel_trials
    place = sweep.next_number % (limit if isinstance(limit, int) else 1)
    return session.get_one(Trial, (sweep.id, sweep.next_number - place)) if spec.deterministic and place else None


def _method_trials(session: Session, sweep: Sweep) -> int:
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
        place=_method_trials(session, sweep),
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
    return NewTrial(number=number, values=dict(found.values), source="method", seen_seq=seen, note=found.note)


def space_of(spec: SweepSpec) -> Space:
    return Space.from_json(spec.parameters, spec.require)


def _begin(plane: ControlPlane, sweep: Sweep, spec: SweepSpec, new: NewTrial, room: Load) -> bool:
    """Make the trial, as a fork of an earlier one where they have steps in common."""
    checked = None
    if room.waiting:  # whether it would start soon costs less to ask than what it has in common with others
        with suppress(InvalidRequest, LimitExceeded):  # for `_make` to record
            checked = trials.check(plane, sweep, new)
            if not _starts_soon(spec, checked, room):
                return False
    begins = trunks.begin(plane, sweep, spec, new)
    if isinstance(begins, trunks.Waits):
        wait(plane, sweep.id, begins.reason)
        return False
    return _make(plane, sweep, spec, begins, room, checked if begins == new else None)


def _make(
    plane: ControlPlane, sweep: Sweep, spec: SweepSpec, new: NewTrial, room: Load, checked: Checked | None = None
) -> bool:
    """``checked``: of this trial, where its document was checked a moment ago."""
    try:
        checked = checked or trials.check(plane, sweep, new, estimates_wait=_asks_for_wait(spec, room))
    except InvalidRequest as error:
        return _refuse(plane, sweep.id, new, f"{error.field}: {error.message}" if error.field else error.message)
    except LimitExceeded as error:
        wait(plane, sweep.id, error.message)
        return False
    if not _starts_soon(spec, checked, room):
        return False
    try:
        job = _store(plane, sweep.id, new, checked)
    except LimitExceeded as error:
        wait(plane, sweep.id, error.message)
        return False
    except Unauthenticated:
        wait(plane, sweep.id, KEY_ENDED)
        return False
    except InvalidRequest as error:
        if new.fork is not None:  # its checkpoint was deleted meanwhile
            return _make(plane, sweep, spec, replace(new, fork=None), room)
        return _refuse(plane, sweep.id, new, error.message)
    if job is None:
        return False
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return True


def _asks_for_wait(spec: SweepSpec, room: Load) -> bool:
    """Whether `_starts_soon` depends on the estimate, which is a large part of what a check costs."""
    return room.waiting == 0 and room.alive > 0 if spec.budget.parallel_trials == FREE else room.waiting > 0


def _starts_soon(spec: SweepSpec, checked: Checked, room: Load) -> bool:
    wait = checked.wait_seconds
    if spec.budget.parallel_trials == FREE:
        return room.alive == 0 or (room.waiting == 0 and wait is not None and wait <= STARTS_NOW_SECONDS)
    return room.waiting == 0 or (wait is not None and wait <= STARTS_SOON_SECONDS)


def _store(plane: ControlPlane, sweep_id: str, new: NewTrial, checked: Checked) -> Job | None:
    """None when the sweep has changed so that this is not its next trial any more."""
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        if not _is_next(sweep, new):
            return None
        if sweep.status == SweepState.PENDING:
            history.move(session, sweep, SweepState.RUNNING, actor=ACTOR, reason="first trial")
        return trials.store(session, plane, sweep, new, checked)


def _is_next(sweep: Sweep, new: NewTrial) -> bool:
    return sweep.next_number == new.number and sweep.status in (SweepState.PENDING, SweepState.RUNNING)


def _refuse(plane: ControlPlane, sweep_id: str, new: NewTrial, reason: str) -> bool:
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        if not _is_next(sweep, new):
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
