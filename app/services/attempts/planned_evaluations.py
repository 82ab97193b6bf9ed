"""Evaluations that a training plans: made in the transaction that records the checkpoint, or the training's end.

So each is made exactly once, its checkpoint is pinned from the start, and nothing has to poll for what is due.
"""

from collections.abc import Collection

from sqlalchemy.orm import Session

from app.domain.evaluations import planned
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.spec.defaults import completed
from app.domain.spec.inference import TRAINING
from app.domain.spec.model import END, JobDocument, PlannedEvaluation
from app.models import Checkpoint, Job
from app.models.insertion import new_row
from app.services.lifecycle import transitions
from app.services.lifecycle.outbox import with_webhooks


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
    made = [_new_job(job, document, plan, checkpoint) for plan in planned.due(document, events)]
    has_webhooks = bool(made) and bool(with_webhooks(session, {job.project}))
    for evaluation in made:
        what = f"step {checkpoint.step}" if checkpoint is not None else "its end"
        submission = transitions.Submission(
            job=evaluation,
            actor=actor,
            message=f"queue {evaluation.queue}; planned by {job.id} for {what}",
            data={"evaluated_job_id": job.id, "checkpoint_id": evaluation.resume_checkpoint_id},
        )
        transitions.record_submission(session, submission, has_webhooks=has_webhooks)
    return [evaluation.id for evaluation in made]


def _new_job(job: Job, trained: JobDocument, plan: PlannedEvaluation, checkpoint: Checkpoint | None) -> Job:
    checkpoint_id, step = (checkpoint.id, checkpoint.step) if checkpoint is not None else (None, None)
    document = completed(planned.evaluation(plan, trained, job_id=job.id, checkpoint_id=checkpoint_id, step=step))
    training, scheduling = document.training_config, document.scheduling_config
    return new_row(
        Job,
        id=new_id("job"),
        project=job.project,
        created_by=job.created_by,
        name=document.name,
        labels=dict(document.labels),
        spec=document.to_json(),
        training_type=training.training_type,
        framework=training.framework.type,
        queue=scheduling.queue,
        priority=scheduling.priority,
        max_retries=training.max_retries,
        resume_checkpoint_id=checkpoint_id,
        evaluated_job_id=job.id,
        evaluated_step=step,
    )
