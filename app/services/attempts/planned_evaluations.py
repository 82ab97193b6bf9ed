"""Evaluations that a training plans: made in the transaction that records the checkpoint, or the training's end.

So each is made exactly once, its checkpoint is pinned from the start, and nothing has to poll for what is due. One
that can't be made costs the training nothing but a warning in its history.
"""

import logging
from collections.abc import Collection

from sqlalchemy.orm import Session

from app.database.transient_errors import is_transient
from app.domain.errors import TrainyardError
from app.domain.evaluations import planned
from app.domain.ids import new_id
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.spec.defaults import completed
from app.domain.spec.inference import TRAINING
from app.domain.spec.model import END, JobDocument, PlannedEvaluation
from app.models import Checkpoint, Job
from app.models.insertion import new_row
from app.services.lifecycle import transitions
from app.services.lifecycle.job_columns import columns_of
from app.services.lifecycle.outbox import with_webhooks

NOT_PLANNED = "EVALUATION_NOT_PLANNED"  # reason in the history of the training

log = logging.getLogger(__name__)


def make_at_end(session: Session, job: Job, *, actor: str) -> None:
    """Make those of the result, if the locked job has one: only now is it COMPLETED."""
    if job.state is JobState.COMPLETED:
        make(session, job, (END,), actor=actor)


def make(
    session: Session, job: Job, events: Collection[str], *, actor: str, checkpoint: Checkpoint | None = None
) -> list[str]:
    """The ids of the new evaluations of a checkpoint of the locked training, or of its result.

    Quotas and limits of queues count them only from then on: they are part of a job that was accepted.
    """
    document = job.document
    if job.kind != TRAINING or not document.training_config.evaluations:
        return []
    due = list(planned.due(document, events))
    has_webhooks = bool(due) and bool(with_webhooks(session, {job.project}))
    made = []
    for plan in due:
        try:
            with session.begin_nested():  # what the database refuses undoes this one alone
                made.append(_submit(session, job, plan, checkpoint, actor=actor, has_webhooks=has_webhooks))
        except Exception as error:
            if is_transient(error):
                raise
            _note_failure(session, job, checkpoint, error, actor=actor)
    return made


def _submit(
    session: Session,
    job: Job,
    plan: PlannedEvaluation,
    checkpoint: Checkpoint | None,
    *,
    actor: str,
    has_webhooks: bool,
) -> str:
    evaluation = _new_job(job, job.document, plan, checkpoint)
    submission = transitions.Submission(
        job=evaluation,
        actor=actor,
        message=f"queue {evaluation.queue}; planned by {job.id} for {_subject(checkpoint)}",
        data={"evaluated_job_id": job.id, "checkpoint_id": evaluation.resume_checkpoint_id},
    )
    transitions.record_submission(session, submission, has_webhooks=has_webhooks)
    session.flush()
    return str(evaluation.id)


def _note_failure(session: Session, job: Job, checkpoint: Checkpoint | None, error: Exception, *, actor: str) -> None:
    """The checkpoint, or the end of the training, is worth more than its evaluation."""
    log.error("an evaluation of %s can't be made", job.id, exc_info=error)
    why = error.message if isinstance(error, TrainyardError) else f"an error of our own, {type(error).__name__}"
    transitions.record_event(
        session,
        job.id,
        EventType.WARNING,
        actor=actor,
        reason=NOT_PLANNED,
        message=f"an evaluation of {_subject(checkpoint)} could not be made: {why}; submit it with POST "
        "/v1/evaluations",
        data={"checkpoint_id": checkpoint.id if checkpoint is not None else None},
    )


def _subject(checkpoint: Checkpoint | None) -> str:
    return f"step {checkpoint.step}" if checkpoint is not None else "its end"


def _new_job(job: Job, trained: JobDocument, plan: PlannedEvaluation, checkpoint: Checkpoint | None) -> Job:
    checkpoint_id, step = (checkpoint.id, checkpoint.step) if checkpoint is not None else (None, None)
    document = completed(planned.evaluation(plan, trained, job_id=job.id, checkpoint_id=checkpoint_id, step=step))
    return new_row(
        Job,
        id=new_id("job"),
        project=job.project,
        created_by=job.created_by,
        **columns_of(document),
        resume_checkpoint_id=checkpoint_id,
        evaluated_job_id=job.id,
        evaluated_step=step,
    )
