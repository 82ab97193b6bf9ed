"""The completion report of a job that has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.lifecycle.goodput import AttemptRun, Goodput, Spell, goodput
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.inference import TRAINING
from app.models import Attempt, Job, Trial
from app.models.base import utc_now
from app.services.jobs import history

_Entered = tuple[datetime, JobState]  # when a job entered a state
# The three ways a completion is reported; a preempted job did not reach its goal.
STATUS = {
    JobState.COMPLETED: "SUCCESS",
    JobState.FAILED: "FAILED",
    JobState.PREEMPTED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
}


@dataclass(frozen=True, kw_only=True)
class CompletionReport:
    """``model_hash`` is the SHA-256 over the bytes of ``weight_files``, in that order; empty without a model."""

    job_id: str
    status: str
    output_model_name: str | None  # as the job document named its result
    model_hash: str
    model_uri: str
    weight_files: list[str]
    final_metrics: dict[str, Any]
    compute_time_ms: int
    gpu_time_ms: int
    average_gpu_util: float | None  # 0–100; None when no device could be observed
    steps: int
    tokens: int
    attempts: int
    goodput: Goodput | None  # None for a job that never started
    error_message: str | None
    error_stack: str | None
    forked_from: int | None  # the trial of the same sweep whose checkpoint the job began with
    steps_saved: int  # that the other trial had made for it


def completion_report(session: Session, job: Job) -> CompletionReport:
    """Raises NotFound until the job has ended."""
    return completion_reports(session, [job])[0]


def completion_reports(session: Session, jobs: Sequence[Job]) -> list[CompletionReport]:
    """As `completion_report`, of each of these jobs."""
    for job in jobs:
        if job.state not in TERMINAL:
            raise NotFound(f"job {job.id} is {job.status}; its report exists when it has ended")
    ids = [job.id for job in jobs]
    attempts, entered = history.attempts_of(session, ids), history.transitions_of(session, ids)
    forks = _forks(session, jobs)
    return [_report(job, attempts[job.id], entered[job.id], forks.get(job.id)) for job in jobs]


def _forks(session: Session, jobs: Sequence[Job]) -> dict[str, tuple[int, int]]:
    """Of the jobs that began with another trial's checkpoint: the number of that trial, and the steps it had made."""
    trials = (job for job in jobs if job.sweep_id is not None)
    ids = [job.id for job in trials if job.document.training_config.resume_from_checkpoint]  # most began with none
    if not ids:
        return {}
    columns = select(Trial.job_id, Trial.parent_number, Trial.fork_step)
    rows = session.execute(columns.where(Trial.job_id.in_(ids), Trial.parent_number.is_not(None)))
    return {row.job_id: (row.parent_number, row.fork_step) for row in rows}


def _report(
    job: Job, attempts: Sequence[Attempt], entered: Sequence[_Entered], fork: tuple[int, int] | None
) -> CompletionReport:
    result = job.report or {}
    forked_from, steps_saved = fork or (None, 0)
    return CompletionReport(
        job_id=job.id,
        status=STATUS[job.state],
        output_model_name=job.document.output_config.output_model_name,
        model_hash=result.get("model_hash", ""),
        model_uri=result.get("model_uri", ""),
        weight_files=result.get("weight_files", []),
        final_metrics=result.get("final_metrics") or job.latest_metrics,
        compute_time_ms=round(job.elapsed_seconds * 1000),
        gpu_time_ms=round(job.gpu_seconds * 1000),
        average_gpu_util=round((job.gpu_util_sum or 0.0) / job.gpu_util_samples, 1) if job.gpu_util_samples else None,
        steps=job.current_step,
        tokens=job.tokens,
        attempts=len(attempts),
        goodput=_goodput(job, attempts, entered),
        error_message=job.error_message,
        error_stack=job.error_stack,
        forked_from=forked_from,
        steps_saved=steps_saved,
    )


def goodput_so_far(session: Session, job: Job, attempts: Sequence[Attempt]) -> Goodput | None:
    """Of a job that may still run, whose running attempt counts until now; None for one that never started."""
    return _goodput(job, attempts, history.transitions_of(session, [job.id])[job.id])


def _goodput(job: Job, attempts: Sequence[Attempt], entered: Sequence[_Entered]) -> Goodput | None:
    runs_until = None if job.state in TERMINAL else utc_now()
    runs = [
        AttemptRun(
            started_at=one.started_at,
            trained_at=one.trained_at,
            ended_at=ended_at,
            failed=one.cause is not None,
            steps=max(0, ((one.end_step if one.ended_at else job.current_step) or 0) - one.start_step),
            lost_steps=one.lost_steps or 0,
            detect_seconds=one.detect_seconds or 0.0,
        )
        for one in attempts
        if one.started_at is not None and (ended_at := one.ended_at or runs_until) is not None
    ]
    spells = [
        Spell(state=state, since=since, until=until)
        for (since, state), (until, _) in pairwise(entered)
        # Only a training stands still while it evaluates.
        if job.kind == TRAINING or state is not JobState.EVALUATING
    ]
    if runs_until is not None and entered:
        since = entered[-1][0]
        spells.append(Spell(state=job.state, since=since, until=max(since, runs_until)))
    return goodput(runs, spells, job.finished_at or runs_until or job.updated_at)
