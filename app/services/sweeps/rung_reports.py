"""Reports at rungs: recorded in one order, and judged by those before them."""

import math
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.rungs import RungReport, judge, rungs_of
from app.domain.sweeps.spec import SweepSpec
from app.models import Job, Sweep, Trial, TrialReport
from app.services.sweeps import history, measures
from app.services.sweeps.history import ACTOR

Found = tuple[int, int, float]  # rung, optimizer step, value


def record(session: Session, sweep: Sweep, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]) -> int:
    """Write and judge every report that is due, in the order of trials; returns how many."""
    recorded = 0
    while due := _due(session, spec, running):
        for trial, found in due:
            _write(session, sweep, spec, trial, found)
        recorded += len(due)
    return recorded


def next_report(session: Session, spec: SweepSpec, trial: Trial, job: Job) -> Found | None:
    """The next report of a trial, if its job has measured it."""
    rung = _next_rung(spec, trial)
    step = measures.step_of_rung(job, spec.early_stopping, rung) if rung is not None else None
    if rung is None or step is None or job.current_step < step:
        return None
    found = measures.first_value_from(session, job.id, spec.objectives[0].metric, step)
    return None if found is None else (rung, *found)


def compared(session: Session, spec: SweepSpec, report: TrialReport) -> list[RungReport]:
    """What a report is judged by: earlier ones of its rung, and its trial's own."""
    same = (TrialReport.rung == report.rung) | (TrialReport.number == report.number)
    query = (
        select(TrialReport, Trial.bracket)
        .join(Trial, (Trial.sweep_id == TrialReport.sweep_id) & (Trial.number == TrialReport.number))
        .where(TrialReport.sweep_id == report.sweep_id, TrialReport.seq < report.seq, same)
        .order_by(TrialReport.seq)
    )
    return [as_judged(spec, each, bracket) for each, bracket in session.execute(query)]


def as_judged(spec: SweepSpec, report: TrialReport, bracket: int) -> RungReport:
    """Smaller values are better; one that is not finite is the worst."""
    value = math.inf if report.value is None else spec.objectives[0].sign * report.value
    return RungReport(number=report.number, rung=report.rung, value=value, seq=report.seq, bracket=bracket)


def _due(session: Session, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]) -> list[tuple[Trial, Found]]:
    """The next report of each trial that has one; of a deterministic sweep the first by rung and number.

    There a report waits until trials with lower numbers have reached its rung, or have ended: then each is judged by
    the same others however fast the nodes are.
    """
    due: list[tuple[Trial, Found]] = []
    awaited: list[tuple[int, int]] = []  # rung, number
    for trial, job in running:
        rung = _next_rung(spec, trial)
        if job is None or rung is None:
            continue
        found = next_report(session, spec, trial, job)
        if found is not None:
            due.append((trial, found))
        elif job.state not in TERMINAL:
            awaited.append((rung, trial.number))
    if not spec.deterministic:
        return due
    ready = [
        (trial, found)
        for trial, found in due
        if not any(rung <= found[0] and number < trial.number for rung, number in awaited)
    ]
    return sorted(ready, key=lambda each: (each[1][0], each[0].number))[:1]


def _next_rung(spec: SweepSpec, trial: Trial) -> int | None:
    rule = spec.early_stopping
    if rule.name == "none" or trial.stop_reason:
        return None
    return next((rung for rung in rungs_of(rule, trial.bracket) if trial.rung is None or rung > trial.rung), None)


def _write(session: Session, sweep: Sweep, spec: SweepSpec, trial: Trial, found: Found) -> None:
    rung, step, value = found
    sweep.seq += 1
    report = TrialReport(
        sweep_id=sweep.id, number=trial.number, rung=rung, seq=sweep.seq, value=value if math.isfinite(value) else None
    )
    verdict = judge(spec.early_stopping, as_judged(spec, report, trial.bracket), compared(session, spec, report))
    report.continues = verdict.continues or trial.promoted
    report.rank, report.compared = verdict.rank, verdict.of
    session.add(report)
    trial.rung, trial.step = rung, step
    place = f"rank {verdict.rank} of {verdict.of} at {rung} {spec.early_stopping.unit}"
    if not report.continues:
        trial.stop_reason = place
    history.record(
        session,
        sweep,
        SweepEventType.TRIAL_REPORTED,
        actor=ACTOR,
        reason="continues" if report.continues else "stops",
        message=f"trial {trial.number}: {place}",
        data={"number": trial.number, "rung": rung, "rank": verdict.rank, "of": verdict.of},
    )
    session.flush()
