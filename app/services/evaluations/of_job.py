"""What has been measured of a job's model, for its report: of the result first, then of its checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.spec.inference import EVALUATION, TYPES
from app.models import Job
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs.details import details_of

MOST = 200


@dataclass(frozen=True, kw_only=True)
class JobEvaluations:
    """At most `MOST` of them. ``passed``: whether the job's result met all that its document requires of it.

    None: nothing is required, or an evaluation that requires something has not completed.
    """

    evaluations: Sequence[EvaluationDetails]
    passed: bool | None


def evaluations_of(session: Session, job: Job) -> JobEvaluations:
    """Those that the job's document plans, and those that were asked for later."""
    newest_step_first = (Job.evaluated_step.is_not(None), Job.evaluated_step.desc(), Job.created_at, Job.id)
    of_job = (Job.evaluated_job_id == job.id, Job.training_type == TYPES[EVALUATION])
    found = session.scalars(select(Job).where(*of_job).order_by(*newest_step_first).limit(MOST)).all()
    evaluations = [EvaluationDetails(details=each) for each in details_of(session, found)]
    return JobEvaluations(evaluations=evaluations, passed=_passed(evaluations))


def _passed(evaluations: Sequence[EvaluationDetails]) -> bool | None:
    retried = {each.job.parent_job_id for each in evaluations}
    required = [
        each.passed
        for each in evaluations
        if each.section.planned
        and each.section.require
        and each.job.evaluated_step is None
        and each.job.id not in retried
    ]
    if False in required:
        return False
    return True if required and None not in required else None
