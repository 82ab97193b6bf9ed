"""Reports at rungs: recorded in one order, and judged by those before them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.sweeps import benchmarks
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.promotions import halts, waits
from app.domain.sweeps.rungs import RungReport, RungVerdict, judge, rungs_of
from app.domain.sweeps.spec import PBT, SweepSpec
from app.models import Job, Sweep, Trial, TrialReport
from app.models.base import utc_now
from app.services.sweeps import history, measures
from app.services.sweeps.history import ACTOR

Found = tuple[int, int, float]  # rung, optimizer step, value
Due = tuple[Trial, Job, Found]
# Where an epoch ends is known to a few steps only (`measures.step_of_rung`).
_EPOCH_SLACK = 3


@dataclass
class Judged:
    """Reports that were recorded, and of those that were decided at once the seconds since their measurement."""

    reports: int = 0
    decided_in: list[float] = field(default_factory=list)


def record(session: Session, sweep: Sweep, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]) -> Judged:
    """Write and judge every report that is due, in the order of trials."""
    judged = Judged()
    while due := _due(session, spec, running):
        for trial, job, found in due:
            report = _write(session, sweep, spec, trial, job, found)
            if report.decided_seq is not None:
                judged.decided_in += _seconds_since(session, spec, job, found)
        judged.reports += len(due)
    return judged


def next_report(session: Session, spec: SweepSpec, trial: Trial, job: Job) -> Found | None:
    """The next report of a trial, if its job has measured it.

    A trial that halts at the rung reports when it has halted; one whose checkpoint failed trains on, and reports then.
    """
    rung = next_rung(spec, trial)
    step = measures.step_of_rung(session, job, spec.early_stopping, rung) if rung is not None else None
    if rung is None or step is None or job.current_step < step or _reports_no_more(spec, job):
        return None
    if _is_halt(spec, rung) and not _has_settled(spec, job, step):
        return None
    metric = spec.objectives[0].metric
    found = measures.first_value_from(session, job, metric, step)
    is_stuck = found is None and _has_halted(session, spec, job, rung) and not trial.paused
    if is_stuck and not measures.is_awaited(session, job, metric, step):
        # It would wait for ever: what it has measured before the rung counts.
        found = measures.newest_value(session, job, metric) or (job.current_step, math.nan)
    return None if found is None else (rung, *found)


def is_due(session: Session, spec: SweepSpec, trial: Trial, job: Job) -> bool:
    """Whether a trial that stands at its next rung is yet to report: it may still be evaluated."""
    return next_report(session, spec, trial, job) is not None or _awaits(session, spec, trial, job)


def next_rung(spec: SweepSpec, trial: Trial) -> int | None:
    """The lowest rung above what the trial has reported; None: there is no other.

    A fork is judged in its trunk, too, as if it had trained that itself, but not with what had other values.
    """
    replaces = trial.source == "exploited"
    rule, after = spec.early_stopping, max(trial.rung or 0, trial.fork_step if replaces else 0)
    if trial.stop_reason:
        return None
    if spec.method.name == PBT:
        every = spec.method.interval or 1
        return (after // every + 1) * every
    return next((rung for rung in rungs_of(rule, trial.bracket) if rung > after), None)


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


def _awaits(session: Session, spec: SweepSpec, trial: Trial, job: Job) -> bool:
    """Whether evaluations decide what it reports at its next rung, and have not ended."""
    rung = next_rung(spec, trial)
    step = measures.step_of_rung(session, job, spec.early_stopping, rung) if rung is not None else None
    if step is None or _reports_no_more(spec, job):
        return False
    return measures.is_awaited(session, job, spec.objectives[0].metric, step)


def _reports_no_more(spec: SweepSpec, job: Job) -> bool:
    """Of a deterministic sweep: whether the job has ended otherwise than completed, so that its evaluations are
    cancelled. Which of them have measured by then depends on how fast the nodes are.
    """
    is_over = job.state in TERMINAL and job.state is not JobState.COMPLETED
    return spec.deterministic and is_over and benchmarks.measured(spec.objectives[0].metric) is not None


def _is_halt(spec: SweepSpec, rung: int) -> bool:
    return halts(spec) and (spec.method.name == PBT or rung < spec.early_stopping.max)


def _has_settled(spec: SweepSpec, job: Job, step: int) -> bool:
    """Whether the job stands at the rung's step, or has passed it."""
    return job.state is JobState.PAUSED or job.state in TERMINAL or _has_passed(spec, job, step)


def _has_passed(spec: SweepSpec, job: Job, step: int) -> bool:
    return job.current_step > (step if measures.is_exact(job, spec.early_stopping) else step + _EPOCH_SLACK)


def _has_halted(session: Session, spec: SweepSpec, job: Job, rung: int) -> bool:
    if job.state is not JobState.PAUSED or not _is_halt(spec, rung):
        return False
    step = measures.step_of_rung(session, job, spec.early_stopping, rung)
    return step is not None and not _has_passed(spec, job, step)


def _due(session: Session, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]) -> list[Due]:
    """The next report of each trial that has one; of a deterministic sweep the first by rung and number.

    There a report waits until trials with lower numbers have reached its rung, or have ended: then each is judged by
    the same others however fast the nodes are. Reports that wait for decisions need no order.
    """
    due: list[Due] = []
    awaited: list[tuple[int, int]] = []  # rung, number
    for trial, job in running:
        rung = next_rung(spec, trial)
        if job is None or rung is None:
            continue
        found = next_report(session, spec, trial, job)
        if found is not None:
            due.append((trial, job, found))
        elif job.state not in TERMINAL or _awaits(session, spec, trial, job):
            awaited.append((rung, trial.number))
    if not spec.deterministic or waits(spec):
        return due
    ready = [
        (trial, job, found)
        for trial, job, found in due
        if not any(rung <= found[0] and number < trial.number for rung, number in awaited)
    ]
    return sorted(ready, key=lambda each: (each[2][0], each[0].number))[:1]


def _seconds_since(session: Session, spec: SweepSpec, job: Job, found: Found) -> list[float]:
    """Since the measurement; none where the clock of its node is ahead, and where the job has not measured it.

    Nor of a deterministic sweep, whose reports wait for trials with lower numbers.
    """
    if spec.deterministic:
        return []
    _, step, _ = found
    measured_at = measures.measured_at(session, job, spec.objectives[0].metric, step)
    seconds = -1.0 if measured_at is None else (utc_now() - measured_at).total_seconds()
    return [seconds] if seconds >= 0 else []


def _write(session: Session, sweep: Sweep, spec: SweepSpec, trial: Trial, job: Job, found: Found) -> TrialReport:
    rung, step, value = found
    sweep.seq += 1
    report = TrialReport(
        sweep_id=sweep.id, number=trial.number, rung=rung, seq=sweep.seq, value=value if math.isfinite(value) else None
    )
    verdict = judge(spec.early_stopping, as_judged(spec, report, trial.bracket), compared(session, spec, report))
    report.rank, report.compared = verdict.rank, verdict.of
    session.add(report)
    trial.rung, trial.step = rung, step
    what = _settle(session, spec, trial, job, report, verdict)
    history.record(
        session,
        sweep,
        SweepEventType.TRIAL_REPORTED,
        actor=ACTOR,
        reason=what,
        message=f"trial {trial.number}: {_place(spec, report)}",
        data={"number": trial.number, "rung": rung, "rank": verdict.rank, "of": verdict.of},
    )
    session.flush()
    return report


def _settle(
    session: Session, spec: SweepSpec, trial: Trial, job: Job, report: TrialReport, verdict: RungVerdict
) -> str:
    """Decide about the report, unless its trial waits for others; what becomes of the trial, in a word."""
    has_halted = _has_halted(session, spec, job, report.rung)
    report.continues = trial.promoted or decided_at_once(spec, report, verdict)
    # One without a finite value can't win; of a population it is replaced like the others.
    can_wait = report.value is not None or spec.method.name == PBT
    if waits(spec) and has_halted and can_wait and not trial.promoted:
        report.continues = False
        return "waits"
    report.decided_seq = report.seq
    if not report.continues:
        trial.stop_reason = _place(spec, report)
        return "stops"
    trial.paused = trial.paused or has_halted  # until its job is requeued
    return "continues"


def decided_at_once(spec: SweepSpec, report: TrialReport, verdict: RungVerdict) -> bool:
    """Whether a trial continues whose report waits for no other; one that has passed a halt is not stopped any more."""
    return report.value is not None if waits(spec) else verdict.continues


def _place(spec: SweepSpec, report: TrialReport) -> str:
    return f"rank {report.rank} of {report.compared} at {report.rung} {spec.early_stopping.unit}"
