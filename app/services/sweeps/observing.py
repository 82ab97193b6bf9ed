"""Records what trials have reported and how they ended, and decides at rungs which of them are stopped.

One transaction numbers each report and each end with the sweep's next `seq`, decides by everything before it, and
requests the end of the losers, so that no crash separates a decision from what it rests on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.model import JobDocument
from app.domain.sweeps import benchmarks
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.observations import NO_VALUE
from app.domain.sweeps.population import is_replaced
from app.domain.sweeps.promotions import judges, waits
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, SweepEvent, Trial, TrialReport
from app.models.base import utc_now
from app.services.jobs.control import requests as control_requests
from app.services.sweeps import counts, evaluations, history, lookup, measures, rung_reports, warm_starts
from app.services.sweeps.counts import Kind
from app.services.sweeps.halting import decisions
from app.services.sweeps.halting.halted import count as halted_count
from app.services.sweeps.halting.halted import undecided
from app.services.sweeps.history import ACTOR

_IS_OVER = Job.id.is_(None) | Job.status.in_(TERMINAL)


@dataclass
class SweepObservations:
    """What a pass over one sweep has found; ``to_nudge`` are jobs with a new control request."""

    reports: int = 0
    ended: int = 0
    to_nudge: list[Job] = field(default_factory=list)


@dataclass
class _Pass:
    """``best`` is that of the sweep once one was asked for; ``events`` and what was ``spared`` are written together."""

    session: Session
    sweep: Sweep
    spec: SweepSpec
    recorded: SweepObservations
    best: Trial | None = None
    events: list[SweepEvent] = field(default_factory=list)
    spared: dict[Kind, list[float]] = field(default_factory=dict)


def has_news(session: Session, sweep: Sweep, spec: SweepSpec) -> bool:
    """Whether `observe` would write anything; reads only, so that most passes take no lock."""
    if not spec.deterministic and not evaluations.named(spec):  # each end counts as soon as it is there
        if _has_ended(session, sweep.id):
            return True
        if not judges(spec):
            return False
    running = _watched(session, sweep, spec)
    if _ended(session, sweep, spec, running) or _resumed_by_hand(session, sweep, spec, running):
        return True
    return any(
        rung_reports.next_report(session, spec, trial, job) is not None for trial, job in running if job is not None
    )


def observe(session: Session, sweep: Sweep, spec: SweepSpec) -> SweepObservations:
    """Write everything that is new; the caller has locked the sweep."""
    now = _Pass(session, sweep, spec, SweepObservations())
    running = _watched(session, sweep, spec)
    for trial, report in _resumed_by_hand(session, sweep, spec, running):
        decisions.continue_by_hand(session, sweep, spec, trial, report)
    judged = rung_reports.record(session, sweep, spec, running)
    now.recorded.reports = judged.reports
    ending = _job_ids(_ended(session, sweep, spec, running))
    cancels = evaluations.of_trainings(session, evaluations.named(spec), ending, unfinished=True)
    if cancels or any(job is not None and _is_to_be_stopped(trial, job) for trial, job in running):
        # All that this transaction may change, older jobs before younger evaluations.
        for loser, its_job in lookup.locked_jobs(session, sweep):
            if _is_to_be_stopped(loser, its_job):
                _request_end(now, loser, its_job.id)
    ended = _ended(session, sweep, spec, running)
    with session.no_autoflush:  # all of them are written together
        for trial, job in ended:
            _take_end(now, trial, job)
    history.write(session, sweep, now.events)
    job_ids = _job_ids(ended)
    now.recorded.to_nudge += evaluations.cancel(session, spec, job_ids, actor=ACTOR, reason="its trial has ended")
    if now.recorded.reports or now.recorded.ended:
        sweep.mark_changed()
    counts.add(session, sweep.project, {Kind.DECISION: judged.decided_in, **now.spared})
    return now.recorded


def running_trials(session: Session, sweep_id: str) -> list[tuple[Trial, Job | None]]:
    """Those that have not ended with their jobs, by number; None for a job that was deleted."""
    return [(row.Trial, row.Job) for row in session.execute(_running(sweep_id))]


def _watched(session: Session, sweep: Sweep, spec: SweepSpec) -> list[tuple[Trial, Job | None]]:
    """The running trials of which there may be news. Without rungs those alone that have ended, or are to: to read the
    jobs of all of them at each end would be most of what it costs.
    """
    if judges(spec) or spec.deterministic:
        return running_trials(session, sweep.id)
    of_news = _running(sweep.id).where(_IS_OVER | (Trial.stop_reason != ""))
    return [(row.Trial, row.Job) for row in session.execute(of_news)]


def _running(sweep_id: str) -> Select[Trial, Job]:
    query = select(Trial, Job).outerjoin(Job, Job.id == Trial.job_id)
    return query.where(Trial.sweep_id == sweep_id, Trial.state == TrialState.RUNNING).order_by(Trial.number)


def _job_ids(trials: Sequence[tuple[Trial, Job | None]]) -> list[str]:
    return [job.id for _, job in trials if job is not None]


def _has_ended(session: Session, sweep_id: str) -> bool:
    found = _running(sweep_id).with_only_columns(Trial.number).where(_IS_OVER)
    return session.scalar(found.limit(1)) is not None


def _ended(
    session: Session, sweep: Sweep, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]
) -> list[tuple[Trial, Job | None]]:
    """Trials whose ends are to be recorded: of a deterministic sweep a whole generation, in the order of numbers.

    Halted trials of it may wait for long: those are not waited for. A trial that is still evaluated has not ended.
    """
    awaited = evaluations.awaited(session, spec, running)
    ended = [(trial, job) for trial, job in running if job is None or (job.state in TERMINAL and job.id not in awaited)]
    if not ended or not spec.deterministic:
        return ended
    halted = halted_count(session, sweep.id) if waits(spec) else 0
    return ended if len(ended) + halted == len(running) else []


def _resumed_by_hand(
    session: Session, sweep: Sweep, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]
) -> list[tuple[Trial, TrialReport]]:
    """Trials with a report that waits for a decision, whose jobs have been resumed by a person."""
    if not waits(spec):
        return []
    reports = {report.number: report for report in undecided(session, sweep)}
    is_idle = (*TERMINAL, JobState.PAUSED)
    return [
        (trial, reports[trial.number])
        for trial, job in running
        if job is not None and trial.number in reports and job.state not in is_idle and not trial.stop_reason
    ]


def _is_to_be_stopped(trial: Trial, job: Job) -> bool:
    return bool(trial.stop_reason) and job.state not in TERMINAL and job.requested != "cancel"


def _request_end(now: _Pass, trial: Trial, job_id: str) -> None:
    reason = f"stopped by its sweep: {trial.stop_reason}"
    job = control_requests.request_cancel(now.session, job_id, actor=ACTOR, reason=reason)
    if job.requested == "cancel":
        now.recorded.to_nudge.append(job)


def _take_end(now: _Pass, trial: Trial, job: Job | None) -> None:
    sweep = now.sweep
    sweep.seq += 1
    now.recorded.ended += 1
    trial.observed_seq, trial.finished_at = sweep.seq, utc_now()
    if waits(now.spec):
        decisions.close(now.session, sweep, now.spec, trial)
    if job is None:
        trial.state, trial.reason = TrialState.CANCELLED, "its job was deleted"
    else:
        trial.device_seconds = sum(map(device_seconds, [job, *_evaluations(now, job)]))
        trial.error_type = job.error_type
        _judge_end(now, trial, job)
        _note_spared(now, trial, job)
    trial.value = trial.objectives[0] if trial.objectives else None
    event = history.numbered(
        sweep,
        SweepEventType.TRIAL_ENDED,
        actor=ACTOR,
        reason=trial.state,
        message=f"trial {trial.number}: {trial.state}{f', {trial.reason}' if trial.reason else ''}",
        data={"number": trial.number, "job_id": trial.job_id, "objectives": trial.objectives, "values": trial.values},
    )
    now.events.append(event)
    _note_best(now, trial)


def _note_spared(now: _Pass, trial: Trial, job: Job) -> None:
    """The device time of the steps that it did not train, at the pace of its own."""
    left = (job.total_steps or 0) - job.current_step if trial.state == TrialState.STOPPED else 0
    trunk = trial.fork_step if trial.source != "exploited" else 0
    own = job.current_step - trial.fork_step
    for kind, steps in ((Kind.BY_STOPPING, left), (Kind.BY_TRUNKS, trunk)):
        if own > 0 and steps > 0:
            now.spared.setdefault(kind, []).append(device_seconds(job) / own * steps)


def device_seconds(job: Job, *, more: float = 0.0) -> float:
    """Devices × seconds of all ended attempts, and of a running one's ``more`` seconds."""
    return (job.elapsed_seconds + more) * device_count(job.document)


def device_count(document: JobDocument) -> int:
    """Devices that a job takes at a time; one that asks for none has a CPU slot."""
    if document.tasks:
        return sum(role.count * role.resource_config.gpu_count for role in document.tasks)
    return max(1, document.resource_config.gpu_count) * document.resource_config.node_count


def _judge_end(now: _Pass, trial: Trial, job: Job) -> None:
    spec, session = now.spec, now.session
    is_evaluated = all(each.state is JobState.COMPLETED for each in _evaluations(now, job))
    if job.state is JobState.COMPLETED and not (trial.stop_reason and (spec.deterministic or not is_evaluated)):
        values, missing = measures.objectives(session, job, spec.objectives)
        trial.objectives, trial.violations = values, measures.violations(session, job, spec.constraints)
        trial.step = job.current_step
        if values is None:
            _note_missing(now, trial, job, missing)
        else:
            trial.state = TrialState.COMPLETED
            trial.reason = "breaks a constraint" if any(each > 0 for each in trial.violations) else ""
    elif trial.stop_reason:
        trial.state = TrialState.EXPLOITED if is_replaced(trial.stop_reason) else TrialState.STOPPED
        trial.reason = trial.stop_reason
        _take_last_value(now, trial, job)
    elif job.state is JobState.FAILED:
        trial.state, trial.reason = TrialState.FAILED, f"{job.error_type}: {job.error_message}"[:2000]
    elif job.state is JobState.PREEMPTED:
        trial.state, trial.reason = TrialState.FAILED, "its job was preempted and does not requeue"
    else:
        trial.state, trial.reason = TrialState.CANCELLED, job.status_reason


def _evaluations(now: _Pass, job: Job) -> Sequence[Job]:
    return evaluations.of_trainings(now.session, evaluations.named(now.spec), [job.id]).get(job.id, [])


def _note_missing(now: _Pass, trial: Trial, job: Job, metric: str) -> None:
    """The trial has no result: it has failed, unless its evaluation was cancelled, which says nothing of its values."""
    trial.state, trial.reason = TrialState.FAILED, f"it ended without a finite value of {metric}"
    trial.error_type = NO_VALUE
    wanted = benchmarks.measured(metric)
    if wanted is None:
        return
    found = evaluations.points(now.session, job, wanted)
    lost = evaluations.ended_without(found)
    if lost is None:
        if not found.evaluations:
            trial.error_type = None  # its values are not why
            trial.reason += f": no evaluation was made, see the events of {job.id}"
        return
    why = f"{lost.error_type}: {lost.error_message}" if lost.error_type else lost.status_reason
    trial.reason = f"{trial.reason}: its evaluation {lost.id} is {lost.status}{f', {why}' if why else ''}"[:2000]
    trial.error_type = lost.error_type
    if lost.state is JobState.CANCELLED:
        trial.state = TrialState.CANCELLED


def _take_last_value(now: _Pass, trial: Trial, job: Job) -> None:
    """The value of a stopped trial: that of its last report, or the newest it has measured.

    One whose last report is not finite has the cause NO_RESULT; of one that measured nothing yet, its values are not
    why.
    """
    query = select(TrialReport.value).where(TrialReport.sweep_id == now.sweep.id, TrialReport.number == trial.number)
    last = now.session.execute(query.order_by(TrialReport.rung.desc()).limit(1)).first()
    value = last.value if last is not None else None
    # Which value is the newest depends on when the request arrived.
    if value is None and len(now.spec.objectives) == 1 and not now.spec.deterministic:
        found = measures.newest_value(now.session, job, now.spec.objectives[0].metric)
        if found is not None and math.isfinite(found[1]):
            trial.step, value = found
    trial.objectives = None if value is None else [value]
    if last is not None and value is None:
        trial.error_type = trial.error_type or NO_VALUE


def _note_best(now: _Pass, trial: Trial) -> None:
    """Note the trial as best if it is; several objectives have a front instead."""
    sweep, spec = now.sweep, now.spec
    is_candidate = trial.state == TrialState.COMPLETED and not any(each > 0 for each in trial.violations)
    if not is_candidate or len(spec.objectives) != 1 or trial.objectives is None:
        return
    best = now.best = now.best or warm_starts.best_trial(now.session, sweep, spec)
    sign, value = spec.objectives[0].sign, trial.objectives[0]
    if best is not None and best.objectives is not None and sign * value >= sign * best.objectives[0]:
        return
    sweep.best_number, sweep.improved_seq, now.best = trial.number, sweep.seq, trial
    event = history.numbered(
        sweep,
        SweepEventType.BEST,
        actor=ACTOR,
        message=f"trial {trial.number} is the best: {spec.objectives[0].metric} {value:g}",
        data={"number": trial.number, "job_id": trial.job_id, "value": value, "values": trial.values},
    )
    now.events.append(event)
