"""Planned evaluations of trials, as far as objectives and constraints name what they measure.

They are jobs of their own: a trial whose training has completed ends only when they have ended, too.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.sweeps import benchmarks
from app.domain.sweeps.benchmarks import BenchmarkMetric
from app.domain.sweeps.spec import SweepSpec
from app.models import Job, Metric, Trial
from app.services.jobs.control import requests as control_requests
from app.services.sweeps import lookup


@dataclass(frozen=True, kw_only=True)
class BenchmarkPoints:
    """What a trial has of a benchmark, by optimizer step: NaN where an evaluation has ended without a value.

    ``evaluations`` has those that count for their steps; ``awaited`` are steps whose evaluations have not ended.
    """

    values: Mapping[int, float]
    evaluations: Mapping[int, Job]
    awaited: Collection[int]

    def first_from(self, step: int) -> tuple[int, float] | None:
        """The first (step, value) from this step on; None while an earlier evaluation may still measure one."""
        first = min((each for each in (*self.values, *self.awaited) if each >= step), default=None)
        return None if first is None or first in self.awaited else (first, self.values[first])


def named(spec: SweepSpec) -> list[BenchmarkMetric]:
    """What objectives and constraints name of benchmarks."""
    metrics = [each.metric for each in spec.objectives] + [each.metric for each in spec.constraints]
    return [found for found in map(benchmarks.measured, metrics) if found is not None]


def of_trainings(
    session: Session, wanted: Sequence[BenchmarkMetric], job_ids: Collection[str], *, unfinished: bool = False
) -> dict[str, list[Job]]:
    """By the training's ID the planned evaluations that measure any of these, oldest first; ``unfinished``: only those
    that have not ended.
    """
    found: dict[str, list[Job]] = {}
    if not wanted or not job_ids:
        return found
    query = select(Job).where(Job.evaluated_job_id.in_(job_ids)).order_by(Job.id)
    if unfinished:
        query = query.where(Job.status.not_in(TERMINAL))
    for job in session.scalars(query):
        if job.evaluated_job_id is not None and any(_measures(job, each) for each in wanted):
            found.setdefault(job.evaluated_job_id, []).append(job)
    return found


def awaited(session: Session, spec: SweepSpec, running: Sequence[tuple[Trial, Job | None]]) -> dict[str, list[Job]]:
    """Unfinished evaluations of the trials whose trainings have completed, by the training's ID: these trials wait.

    One that is being stopped waits for none.
    """
    completed = [
        job.id
        for trial, job in running
        if job is not None and job.state is JobState.COMPLETED and not trial.stop_reason
    ]
    return of_trainings(session, named(spec), completed, unfinished=True)


def cancel(session: Session, spec: SweepSpec, job_ids: Collection[str], *, actor: str, reason: str) -> list[Job]:
    """Request the end of the unfinished evaluations of these trainings.

    Returns those whose supervisors are to be nudged after the commit. All rows are locked first, in the order of IDs.
    """
    by_training = of_trainings(session, named(spec), job_ids, unfinished=True)
    ids = [each.id for listed in by_training.values() for each in listed]
    if not ids:
        return []
    locked = select(Job).where(Job.id.in_(ids)).order_by(Job.id).with_for_update()
    found = session.scalars(locked, execution_options={"populate_existing": True}).all()
    asked = [
        control_requests.request_cancel(session, each.id, actor=actor, reason=reason)
        for each in found
        if each.state not in TERMINAL
    ]
    return [job for job in asked if job.requested == "cancel"]


def points(session: Session, job: Job, wanted: BenchmarkMetric) -> BenchmarkPoints:
    """Of a trial's job and, up to the branch, of those whose trunk it shares."""
    last = lookup.lineage(session, job.id)
    trained = {each.id: each for each in session.scalars(select(Job).where(Job.id.in_(last)))}
    placed = [
        (_step_of(each, trained[job_id]), each)
        for job_id, listed in of_trainings(session, [wanted], trained.keys()).items()
        for each in listed
        if _step_of(each, trained[job_id]) <= last[job_id]
    ]
    placed.sort(key=lambda pair: _rank(pair[1]))
    evaluations = dict(placed)  # of each step the one that ranks highest
    values = {step: math.nan for step, each in evaluations.items() if each.state in TERMINAL}
    measured = {(each.evaluated_job_id, step) for step, each in evaluations.items() if each.state is JobState.COMPLETED}
    query = select(Metric.job_id, Metric.step, Metric.value).where(Metric.job_id.in_(last))
    for row in session.execute(query.where(Metric.name == wanted.point)):
        # Other benchmarks may write points of the same name.
        if (row.job_id, row.step) in measured and row.value is not None:
            values[row.step] = row.value
    return BenchmarkPoints(values=values, evaluations=evaluations, awaited=evaluations.keys() - values.keys())


def ended_without(found: BenchmarkPoints) -> Job | None:
    """The evaluation of the latest step that has ended without measuring it; None where there is none."""
    is_lost = (each for _, each in sorted(found.evaluations.items(), reverse=True) if each.state in TERMINAL)
    return next((each for each in is_lost if each.state is not JobState.COMPLETED), None)


def _measures(evaluation: Job, wanted: BenchmarkMetric) -> bool:
    section = evaluation.document.inference
    return section is not None and section.planned and any(wanted.is_of(each.name) for each in section.benchmarks)


def _rank(evaluation: Job) -> tuple[int, bool, str]:
    """Which of several evaluations of a step counts: one that has measured before one that still may, then that of the
    result before that of a checkpoint, then the newest.
    """
    by_state = 2 if evaluation.state is JobState.COMPLETED else int(evaluation.state not in TERMINAL)
    return by_state, evaluation.evaluated_step is None, evaluation.id


def _step_of(evaluation: Job, trained: Job) -> int:
    """The optimizer step of the model that it measures."""
    return trained.current_step if evaluation.evaluated_step is None else evaluation.evaluated_step
