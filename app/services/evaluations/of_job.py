"""What has been measured of a job's model, for its report: of the result first, then of its checkpoints."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from app.domain.spec.inference import EVALUATION, TRAINING, TYPES, Benchmark
from app.domain.spec.model import END, JobDocument, PlannedBenchmark
from app.models import Job
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs.details import without_outlook

MOST = 200
_NEWEST_STEP_FIRST = (Job.evaluated_step.is_not(None), Job.evaluated_step.desc(), Job.created_at, Job.id)


@dataclass(frozen=True, kw_only=True)
class JobEvaluations:
    """At most `MOST` of them. ``passed``: whether the job's result met all that its document requires of it.

    None: nothing is required, or an evaluation that requires something has not completed, was never made or was
    deleted.
    """

    evaluations: Sequence[EvaluationDetails]
    passed: bool | None


def evaluations_of(session: Session, job: Job) -> JobEvaluations:
    """Those that the job's document plans, and those that were asked for later."""
    found = session.scalars(select(Job).where(*_of(job)).order_by(*_NEWEST_STEP_FIRST).limit(MOST)).all()
    evaluations = [EvaluationDetails(details=each) for each in without_outlook(session, found)]
    return JobEvaluations(evaluations=evaluations, passed=_passed(job.document, evaluations))


def ids_of(session: Session, job: Job) -> list[str] | None:
    """The ids of the same, in the same order; None for a job that trains nothing, and makes no model."""
    if job.kind != TRAINING:
        return None
    return list(session.scalars(select(Job.id).where(*_of(job)).order_by(*_NEWEST_STEP_FIRST).limit(MOST)))


def _of(job: Job) -> tuple[ColumnElement[bool], ...]:
    return (Job.evaluated_job_id == job.id, Job.training_type == TYPES[EVALUATION])


def _passed(trained: JobDocument, evaluations: Sequence[EvaluationDetails]) -> bool | None:
    retried = {each.job.parent_job_id for each in evaluations}
    required = [
        each
        for each in evaluations
        if each.section.planned
        and each.section.require
        and each.job.evaluated_step is None
        and each.job.id not in retried
    ]
    passed = [each.passed for each in required]
    if False in passed:
        return False
    # Plans of the result have no benchmark in common, so that benchmarks tell them apart.
    plans = {_names(each.benchmarks) for each in trained.training_config.evaluations if each.on == END and each.require}
    has_all = plans <= {_names(each.section.benchmarks) for each in required}
    return True if required and has_all and None not in passed else None


def _names(benchmarks: Iterable[Benchmark | PlannedBenchmark]) -> frozenset[str]:
    return frozenset(each.name for each in benchmarks)
