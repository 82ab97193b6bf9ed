"""Decisions about halted trials: each is numbered with the sweep's next `seq`, and recorded with what it rests on."""

import math
from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.rungs import RungReport
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep, Trial, TrialReport
from app.services.sweeps import history
from app.services.sweeps.history import ACTOR


def reports_of(session: Session, sweep: Sweep, spec: SweepSpec) -> Sequence[RungReport]:
    """All reports of the sweep, decided or not, in the order in which they were recorded."""
    query = (
        select(TrialReport.number, TrialReport.rung, TrialReport.value, TrialReport.seq, Trial.bracket)
        .join(Trial, (Trial.sweep_id == TrialReport.sweep_id) & (Trial.number == TrialReport.number))
        .where(TrialReport.sweep_id == sweep.id)
        .order_by(TrialReport.seq)
    )
    sign = spec.objectives[0].sign
    return [
        RungReport(number, rung, math.inf if value is None else sign * value, seq, bracket)
        for number, rung, value, seq, bracket in session.execute(query)
    ]


def continue_trial(session: Session, sweep: Sweep, trial: Trial, report: TrialReport, *, rank: int, of: int) -> None:
    """Decide that a halted trial continues. The caller has locked the sweep and calls `resuming.resume_paused` after
    its decisions, which requeues the job; where that is not possible yet, each step of the sweep tries it again.
    """
    sweep.seq += 1
    _decide(sweep, report, continues=True, rank=rank, of=of)
    trial.paused = True  # until its job is requeued
    _record(session, sweep, trial, report)


def end_trial(session: Session, sweep: Sweep, trial: Trial, report: TrialReport, *, rank: int, of: int) -> None:
    """Decide that a halted trial ends. The caller has locked the sweep and cancels the job, or the next step does."""
    sweep.seq += 1
    _decide(sweep, report, continues=False, rank=rank, of=of)
    trial.stop_reason = place_of(sweep, report)
    _record(session, sweep, trial, report)


def continue_by_hand(session: Session, sweep: Sweep, spec: SweepSpec, trial: Trial, report: TrialReport) -> None:
    """A person has resumed the job of a halted trial, and wants it trained whatever the others report."""
    sweep.seq += 1
    rank, of = _standing(session, sweep, spec, trial, report)
    _decide(sweep, report, continues=True, rank=rank, of=of)
    trial.promoted = True
    history.record(
        session,
        sweep,
        SweepEventType.CHANGED,
        actor=ACTOR,
        message=f"trial {trial.number} was resumed by hand and is exempt from early stopping",
        data={"number": trial.number},
    )


def close(session: Session, sweep: Sweep, spec: SweepSpec, trial: Trial) -> None:
    """The trial has ended, by a request or otherwise: its report waits no more. The sweep's `seq` is that end's."""
    of_trial = (TrialReport.sweep_id == sweep.id) & (TrialReport.number == trial.number)
    for report in session.scalars(select(TrialReport).where(of_trial, TrialReport.decided_seq.is_(None))).all():
        rank, of = _standing(session, sweep, spec, trial, report)
        _decide(sweep, report, continues=False, rank=rank, of=of)


def place_of(sweep: Sweep, report: TrialReport) -> str:
    unit = (sweep.spec.get("early_stopping") or {}).get("unit") or "steps"
    return f"rank {report.rank} of {report.compared} at {report.rung} {unit}"


def _standing(session: Session, sweep: Sweep, spec: SweepSpec, trial: Trial, report: TrialReport) -> tuple[int, int]:
    """As `promotions.standings` has it, for one report."""
    sign = spec.objectives[0].sign
    is_better: ColumnElement[bool] = TrialReport.value.is_not(None)
    is_equal: ColumnElement[bool] = TrialReport.value.is_(None)
    if report.value is not None:
        is_better, is_equal = sign * TrialReport.value < sign * report.value, TrialReport.value == report.value
    query = (
        select(func.count(), func.count().filter(is_better | (is_equal & (TrialReport.number < report.number))))
        .join(Trial, (Trial.sweep_id == TrialReport.sweep_id) & (Trial.number == TrialReport.number))
        .where(TrialReport.sweep_id == sweep.id, TrialReport.rung == report.rung, Trial.bracket == trial.bracket)
    )
    of, better = session.execute(query).one()
    return 1 + better, of


def _decide(sweep: Sweep, report: TrialReport, *, continues: bool, rank: int, of: int) -> None:
    report.decided_seq, report.continues = sweep.seq, continues
    report.rank, report.compared = rank, of
    sweep.mark_changed()


def _record(session: Session, sweep: Sweep, trial: Trial, report: TrialReport) -> None:
    what = "continues" if report.continues else "stops"
    history.record(
        session,
        sweep,
        SweepEventType.TRIAL_REPORTED,
        actor=ACTOR,
        reason=what,
        message=f"trial {trial.number}: {what}, {place_of(sweep, report)}",
        data={"number": trial.number, "rung": report.rung, "rank": report.rank, "of": report.compared},
    )
    session.flush()
