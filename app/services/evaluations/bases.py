"""What an evaluation can be compared with: completed evaluations on its benchmarks, the likeliest base first."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.evaluations import catalog
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import EVALUATION, TYPES
from app.models import Job
from app.services.evaluations.listing import EvaluationDetails
from app.services.jobs.details import without_outlook

MOST = 50


def bases(session: Session, evaluation: EvaluationDetails) -> list[EvaluationDetails]:
    """Of the `MOST` newest of its project, those that share a benchmark with it.

    First those that its requirements name, then those of the model that its job began with, then others of its job.
    """
    job = evaluation.job
    completed = (Job.project == job.project, Job.training_type == TYPES[EVALUATION], Job.status == JobState.COMPLETED)
    query = select(Job).where(*completed, Job.id != job.id).order_by(Job.created_at.desc(), Job.id.desc()).limit(MOST)
    found = [EvaluationDetails(details=each) for each in without_outlook(session, session.scalars(query).all())]
    mine, named = _labels(evaluation), {each.baseline for each in evaluation.section.require}
    origin = _base_model(session, evaluation)

    def rank(other: EvaluationDetails) -> int:
        if other.job.id in named:
            return 0
        if is_of(other, origin):
            return 1
        return 2 if other.job.evaluated_job_id and other.job.evaluated_job_id == job.evaluated_job_id else 3

    return sorted((each for each in found if _labels(each) & mine), key=rank)


def likeliest(session: Session, evaluation: EvaluationDetails, found: Sequence[EvaluationDetails]) -> str:
    """The id of the first of ``found`` if it is named as the baseline, or of the model that was trained; else empty."""
    named = {each.baseline for each in evaluation.section.require}
    if found and (found[0].job.id in named or is_of(found[0], _base_model(session, evaluation))):
        return found[0].job.id
    return ""


def is_of(evaluation: EvaluationDetails, model_id: str) -> bool:
    """Whether it has measured this model, which no job has made."""
    base = evaluation.details.document.training_config.base_model
    return bool(model_id) and evaluation.section.model.job_id is None and base.model_id == model_id


def _base_model(session: Session, evaluation: EvaluationDetails) -> str:
    trained = session.get(Job, evaluation.job.evaluated_job_id) if evaluation.job.evaluated_job_id else None
    if trained is None or trained.project != evaluation.job.project:
        return ""
    return trained.document.training_config.base_model.model_id


def _labels(evaluation: EvaluationDetails) -> set[str]:
    return {catalog.label(each.name) for each in evaluation.section.benchmarks}
