"""What a sweep has used of its budget, and why it makes no further trial."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, func, literal, select
from sqlalchemy.orm import Session, load_only

from app.domain.lifecycle.states import RUNNING
from app.domain.sweeps.rules.limits import SweepLimits
from app.domain.sweeps.spec import GRID, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Attempt, Job, Sweep, Trial
from app.models.base import utc_now
from app.services.sweeps import evaluations, warm_starts
from app.services.sweeps.halting.halted import count as halted_count
from app.services.sweeps.observing import device_seconds

# When the first trials all fail by a cause that values rarely have, the others would fail, too.
FIRST_ALIKE = 3
OF_THE_FIXED_PART = frozenset(
    {"MODEL_NOT_FOUND", "DATA_NOT_FOUND", "DATA_INVALID", "INVALID_CONFIG", "PACKAGES_FAILED"}
)


@dataclass(frozen=True, kw_only=True)
class Used:
    """Of a sweep so far; ``without_improvement`` are the trials that have completed since the best one did,
    ``halted`` those of the running ones that wait at a rung without a device.
    """

    trials: int
    by_state: Mapping[str, int]
    device_seconds: float
    seconds: float
    without_improvement: int
    halted: int = 0


def used(session: Session, sweep: Sweep) -> Used:
    """All of it, as it is shown."""
    return _used(session, sweep, reads_jobs=True, reads_rows=True)


def used_of(session: Session, sweep: Sweep, spec: SweepSpec) -> Used:
    """What decides about the budget, which steps ask for all the time.

    The jobs of running trials are read only where device hours are limited, and the rows of all trials only where
    those or `patience` are: states alone are counted in an index.
    """
    is_limited = spec.budget.max_device_hours is not None
    return _used(session, sweep, reads_jobs=is_limited, reads_rows=is_limited or spec.budget.patience is not None)


def _used(session: Session, sweep: Sweep, *, reads_jobs: bool, reads_rows: bool) -> Used:
    seconds: ColumnElement[float] = literal(0.0)
    later: ColumnElement[int] = literal(0)
    if reads_rows:
        seconds = func.sum(Trial.device_seconds)
        later = func.sum(case((Trial.observed_seq > sweep.improved_seq, 1), else_=0))
    query = select(Trial.state, func.count(), seconds, later)
    rows = session.execute(query.where(Trial.sweep_id == sweep.id).group_by(Trial.state)).all()
    counts, since = {row[0]: row[1] for row in rows}, {row[0]: row[3] for row in rows}
    end, runs = sweep.finished_at or utc_now(), reads_jobs and bool(counts.get(TrialState.RUNNING))
    return Used(
        trials=sweep.next_number,
        by_state={state: counts.get(state, 0) for state in TrialState},
        device_seconds=sum(row[2] for row in rows) + (_running_device_seconds(session, sweep) if runs else 0.0),
        seconds=max(0.0, (end - sweep.started_at).total_seconds()) if sweep.started_at else 0.0,
        without_improvement=since.get(TrialState.COMPLETED, 0),
        halted=halted_count(session, sweep.id) if runs else 0,
    )


def most_trials(spec: SweepSpec, limits: SweepLimits) -> int | None:
    """How many trials the sweep may make; None for a grid, which ends after its points, as many as were allowed."""
    if spec.budget.max_trials is not None or spec.method.name == GRID:
        return spec.budget.max_trials
    return limits.max_trials


def exhausted(session: Session, sweep: Sweep, spec: SweepSpec, so_far: Used, limits: SweepLimits) -> str:
    """Which part of the budget is used up; empty: there may be another trial."""
    most = most_trials(spec, limits)
    if most is not None and so_far.trials >= most:
        is_named = spec.budget.max_trials is not None
        why = "" if is_named else ", as many as are allowed here (TRAINYARD_SWEEP_MAX_TRIALS)"
        return f"max_trials: {most} trials were made{why}"
    return _spent(session, sweep, spec, so_far)


def is_spent(session: Session, sweep: Sweep, spec: SweepSpec) -> bool:
    """Whether more than its trials is used up, so that those that wait at a rung have little time left."""
    return bool(_spent(session, sweep, spec, used_of(session, sweep, spec)))


def _spent(session: Session, sweep: Sweep, spec: SweepSpec, so_far: Used) -> str:
    budget = spec.budget
    if budget.max_device_hours is not None and so_far.device_seconds >= budget.max_device_hours * 3600:
        return f"max_device_hours: {so_far.device_seconds / 3600:.2f} device hours were used"
    if budget.max_seconds is not None and so_far.seconds >= budget.max_seconds:
        return f"max_seconds: {so_far.seconds:.0f} seconds have passed"
    if budget.patience is not None and so_far.without_improvement >= budget.patience:
        than = _named(sweep.best_number) if sweep.best_number is not None else "none: each breaks a constraint"
        return f"patience: {so_far.without_improvement} trials were not better than {than}"
    if budget.target is not None and sweep.best_number is not None:
        best = warm_starts.best_trial(session, sweep, spec)
        sign, value = spec.objectives[0].sign, (best.objectives if best is not None else None) or [math.inf]
        if sign * value[0] <= sign * budget.target:
            return f"target: {_named(sweep.best_number)} reached {value[0]:g}"
    return ""


def _named(number: int) -> str:
    return f"trial {number}" if number >= 0 else "the best result of an earlier sweep"


def too_many_failed(session: Session, sweep: Sweep, spec: SweepSpec, so_far: Used) -> str:
    """Why the failures of trials fail the sweep; empty: they do not."""
    failed = so_far.by_state[TrialState.FAILED]
    limit = spec.on_failed_trials.limit(spec.budget.max_trials or so_far.trials)
    if failed > limit:
        return f"{failed} trials failed; on_failed_trials.max_failed allows {limit}"
    if failed < FIRST_ALIKE:
        return ""
    first = select(Trial.state, Trial.error_type, Trial.reason).where(
        Trial.sweep_id == sweep.id, Trial.observed_seq.is_not(None)
    )
    rows = session.execute(first.order_by(Trial.observed_seq).limit(FIRST_ALIKE)).all()
    causes = {row.error_type for row in rows if row.state == TrialState.FAILED}
    if len(rows) == FIRST_ALIKE and len(causes) == 1 and causes <= OF_THE_FIXED_PART:
        alike = all(row.state == TrialState.FAILED for row in rows)
        return f"the first {FIRST_ALIKE} trials failed alike: {rows[0].reason}" if alike else ""
    return ""


def _running_device_seconds(session: Session, sweep: Sweep) -> float:
    """Of the trials that have not ended, with the evaluations that they wait for."""
    running = select(Trial.job_id).where(Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING)
    job_ids = [job_id for job_id in session.scalars(running) if job_id is not None]
    named = evaluations.named(SweepSpec.from_json(sweep.spec))
    for listed in evaluations.of_trainings(session, named, job_ids).values():
        job_ids += [each.id for each in listed]
    is_running = (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt) & Attempt.ended_at.is_(None)
    query = select(Job, Attempt.started_at).outerjoin(Attempt, is_running).where(Job.id.in_(job_ids))
    query = query.options(load_only(Job.status, Job.spec, Job.elapsed_seconds))
    now, total = utc_now(), 0.0
    for job, started_at in session.execute(query):
        seconds = (now - started_at).total_seconds() if started_at is not None and job.state in RUNNING else 0.0
        total += device_seconds(job, more=max(0.0, seconds))
    return total
