"""A step of a sweep: record what is new, decide, end the sweep if it is due, and make trials while there is room."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.promotions import waits
from app.domain.sweeps.rules.limits import SweepLimits
from app.domain.sweeps.spec import PBT, SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.services.jobs.control import requests as control_requests
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import budget, evaluations, history, kept_checkpoints, lookup, next_trial, observing, resuming
from app.services.sweeps.forking import populations, verification
from app.services.sweeps.halting import promoting
from app.services.sweeps.history import ACTOR
from app.services.sweeps.next_trial import Suggests, Turn
from app.services.sweeps.observed import best_numbers
from app.services.sweeps.reading.forecast import StartForecast

ACTIVE = (SweepState.PENDING, SweepState.RUNNING, SweepState.PAUSED, SweepState.FINISHING)
logger = logging.getLogger(__name__)
# Trials that are made in one step: the sweeps of other projects are next.
MOST_AT_ONCE = 16


def active(db: Database) -> Sequence[str]:
    """Ids of the sweeps that have not ended, oldest first."""
    with db.query() as connection:
        return connection.scalars(select(Sweep.id).where(Sweep.status.in_(ACTIVE)).order_by(Sweep.id)).all()


def step_all(plane: ControlPlane, suggestions: Suggests, sweep_ids: Sequence[str]) -> bool:
    """Advance each of these sweeps; whether there is more to do at once.

    One that fails is logged and must not hold up the others.
    """
    has_more = False
    for sweep_id in sweep_ids:
        try:
            has_more = step(plane, suggestions, sweep_id) or has_more
        except Exception:
            logger.exception("sweep %s failed to advance and will be retried", sweep_id)
    return has_more


def step(plane: ControlPlane, suggestions: Suggests, sweep_id: str) -> bool:
    """Do what is due; whether there is more to do at once."""
    with plane.db.read() as session:
        sweep = session.get(Sweep, sweep_id)
        if sweep is None or sweep.status not in ACTIVE:
            return False
        spec = SweepSpec.from_json(sweep.spec)
        is_due = _is_due(session, sweep, spec, plane.sweep_limits)
    is_finishing = is_due and _record_news(plane, sweep_id)
    if spec.verify_trunks:
        verification.advance(plane, sweep_id)
    if is_finishing:
        _end_if_done(plane, sweep_id)
    forecast, turn = StartForecast(plane.estimates, MOST_AT_ONCE), Turn()
    return all(_use_room(plane, suggestions, sweep_id, spec, forecast, turn) for _ in range(MOST_AT_ONCE))


def _use_room(
    plane: ControlPlane, suggestions: Suggests, sweep_id: str, spec: SweepSpec, forecast: StartForecast, turn: Turn
) -> bool:
    """A halted trial that has earned it continues, or else a new one begins; whether to ask again at once."""
    if waits(spec):  # which never changes
        decide = populations.decide if spec.method.name == PBT else promoting.promote
        if decide(plane, sweep_id):
            forecast.forget()
            return True
    is_made = next_trial.launch(replace(plane, estimates=forecast), suggestions, sweep_id, turn)
    forecast.advance()
    return is_made


def _is_due(session: Session, sweep: Sweep, spec: SweepSpec, limits: SweepLimits) -> bool:
    """Whether `_record_news` has anything to write; reads only, so that most steps take no lock."""
    if (
        observing.has_news(session, sweep, spec)
        or _awaited_in_vain(session, sweep, spec)
        or resuming.has_paused(session, sweep)
    ):
        return True
    if sweep.status == SweepState.FINISHING:
        return _alive(session, sweep.id) == 0
    if sweep.status == SweepState.PAUSED:
        return False
    so_far = budget.used_of(session, sweep, spec)
    used_up = budget.exhausted(session, sweep, spec, so_far, limits)
    return bool(used_up or budget.too_many_failed(session, sweep, spec, so_far))


def _record_news(plane: ControlPlane, sweep_id: str) -> bool:
    """One transaction: everything that is new, and what follows from it for the sweep; whether it is FINISHING."""
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        if sweep.status not in ACTIVE:
            return False
        spec = SweepSpec.from_json(sweep.spec)
        to_nudge = _cancel_awaited(session, sweep, spec)
        to_nudge += observing.observe(session, sweep, spec).to_nudge
        session.flush()
        resuming.resume_paused(session, sweep, actor=ACTOR)
        to_nudge += _finish_if_due(session, sweep, spec, plane.sweep_limits)
    for job in to_nudge:
        plane.nudge(job)
    return sweep.status == SweepState.FINISHING


def _awaited_in_vain(session: Session, sweep: Sweep, spec: SweepSpec) -> list[str]:
    """Trainings that wait for evaluations which were made after the sweep has cancelled its trials."""
    if sweep.status != SweepState.FINISHING or sweep.ends_as not in (SweepState.CANCELLED, SweepState.FAILED):
        return []
    awaited = evaluations.awaited(session, spec, observing.running_trials(session, sweep.id))
    found = [job_id for job_id, listed in awaited.items() if any(each.requested != "cancel" for each in listed)]
    if not found or sweep.ends_as == SweepState.CANCELLED:
        return found
    # One that fails because its method finds no values lets its trials end.
    return found if budget.too_many_failed(session, sweep, spec, budget.used_of(session, sweep, spec)) else []


def _cancel_awaited(session: Session, sweep: Sweep, spec: SweepSpec) -> list[Job]:
    """Returns the jobs whose supervisors are to be nudged after the commit."""
    job_ids = _awaited_in_vain(session, sweep, spec)
    if not job_ids:
        return []
    lookup.locked_jobs(session, sweep)  # older jobs before younger evaluations
    return evaluations.cancel(session, spec, job_ids, actor=ACTOR, reason=f"by its sweep: {sweep.status_reason}")


def _finish_if_due(session: Session, sweep: Sweep, spec: SweepSpec, limits: SweepLimits) -> list[Job]:
    """Move the sweep to FINISHING when its budget is used up or too many trials have failed.

    Returns the jobs whose supervisors are to be nudged after the commit.
    """
    cancelled: list[Job] = []
    if sweep.status == SweepState.FINISHING and sweep.ends_as == SweepState.COMPLETED:
        failure = budget.too_many_failed(session, sweep, spec, budget.used_of(session, sweep, spec))
        if failure:
            sweep.ends_as, sweep.status_reason = SweepState.FAILED, failure
            cancelled = cancel_trials(session, sweep, actor=ACTOR, reason=failure)
    elif sweep.status in (SweepState.PENDING, SweepState.RUNNING, SweepState.PAUSED):
        so_far = budget.used_of(session, sweep, spec)
        failure = budget.too_many_failed(session, sweep, spec, so_far)
        is_paused = sweep.status == SweepState.PAUSED
        used_up = "" if is_paused else budget.exhausted(session, sweep, spec, so_far, limits)
        if failure:
            sweep.ends_as = SweepState.FAILED
            history.move(session, sweep, SweepState.FINISHING, actor=ACTOR, reason="failed trials", message=failure)
            cancelled = cancel_trials(session, sweep, actor=ACTOR, reason=failure)
        elif used_up:
            sweep.ends_as = SweepState.COMPLETED
            history.move(session, sweep, SweepState.FINISHING, actor=ACTOR, reason="budget", message=used_up)
            if spec.budget.running == "cancel":
                cancelled = cancel_trials(session, sweep, actor=ACTOR, reason=used_up, counts=True)
    return cancelled


def _end_if_done(plane: ControlPlane, sweep_id: str) -> None:
    """End a sweep of which no trial is left, once only the checkpoints that are to be kept are there."""
    with plane.db.read() as session:
        sweep = session.get(Sweep, sweep_id)
        if sweep is None or not _is_done(session, sweep):
            return
        spec = SweepSpec.from_json(sweep.spec)
        # Before the transactions: among many trials with several objectives it takes a while.
        kept = best_numbers(session, sweep, spec, top=spec.keep_checkpoints_of_best)
    has_more = True
    while has_more:
        with plane.db.write() as session:
            sweep = lookup.locked(session, sweep_id)
            if not _is_done(session, sweep):
                return
            retired = kept_checkpoints.retire_some(session, sweep, kept)
            has_more = bool(retired)
            if not has_more:
                _end(session, sweep)
        kept_checkpoints.delete_files(plane, retired)


def _is_done(session: Session, sweep: Sweep) -> bool:
    is_over = sweep.status == SweepState.FINISHING and _alive(session, sweep.id) == 0
    return is_over and not verification.is_open(session, sweep)


def _end(session: Session, sweep: Sweep) -> None:
    message, to = sweep.status_reason, SweepState(sweep.ends_as or SweepState.COMPLETED)
    # An earlier result may be the best before any trial.
    if to is SweepState.COMPLETED and sweep.best_number is None and _completed(session, sweep.id) == 0:
        to, message = SweepState.FAILED, f"no trial completed; {message}"
    history.move(session, sweep, to, actor=ACTOR, message=message)


def cancel_trials(session: Session, sweep: Sweep, *, actor: str, reason: str, counts: bool = False) -> list[Job]:
    """Request the end of every running trial; returns the jobs whose supervisors are to be nudged after the commit.

    ``counts``: what they have measured counts, as that of a trial that early stopping ended.
    """
    to_nudge, spec = [], SweepSpec.from_json(sweep.spec)
    trials = lookup.locked_jobs(session, sweep)
    awaited = evaluations.awaited(session, spec, trials)
    for trial, job in trials:
        if job.state in TERMINAL and job.id not in awaited:
            continue
        if counts:
            trial.stop_reason = trial.stop_reason or reason
        if job.state in TERMINAL:
            continue
        asked = control_requests.request_cancel(session, job.id, actor=actor, reason=f"by its sweep: {reason}")
        if asked.requested == "cancel":
            to_nudge.append(asked)
    why, job_ids = f"by its sweep: {reason}", [job.id for _, job in trials]
    to_nudge += evaluations.cancel(session, spec, job_ids, actor=actor, reason=why)
    return to_nudge + verification.cancel(session, sweep, actor=actor, reason=why)


def _alive(session: Session, sweep_id: str) -> int:
    return _count(session, sweep_id, TrialState.RUNNING)


def _completed(session: Session, sweep_id: str) -> int:
    return _count(session, sweep_id, TrialState.COMPLETED)


def _count(session: Session, sweep_id: str, state: TrialState) -> int:
    query = select(func.count()).where(Trial.sweep_id == sweep_id, Trial.state == state)
    return session.scalar(query) or 0
