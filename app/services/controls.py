"""Wishes about a job: a column that the holder of the job brings about, or at once when nobody holds it."""

from typing import NoReturn

from sqlalchemy.orm import Session

from app.domain import hyperparameters
from app.domain.errors import IllegalTransition
from app.domain.events import EventType
from app.domain.job_state import TERMINAL, UNHELD, JobState
from app.models import Attempt, Job
from app.models.base import utc_now
from app.services import audit, lifecycle

# While nothing else runs than steps, or what interrupts them for a moment.
SAVING = (JobState.TRAINING, JobState.CHECKPOINTING, JobState.EVALUATING)


def wish_cancel(session: Session, job_id: str, *, actor: str, reason: str = "") -> Job:
    """Cancel a job that nobody holds, or ask its holder to; idempotent on CANCELLED and on a repeated wish.

    Raises IllegalTransition when the job has ended otherwise. The caller nudges the node after the commit when
    ``job.requested`` is set.
    """
    job = lifecycle.load_for_change(session, job_id)
    if job.state is JobState.CANCELLED:
        return job
    if job.state in TERMINAL:
        raise IllegalTransition(
            f"job {job_id} is {job.status} and cannot be cancelled; only a job that has not ended can"
        )
    if job.state in UNHELD:
        lifecycle.transition(
            session, job, JobState.CANCELLED, actor=actor, reason="cancelled", message=reason,
            cancel_requested_at=utc_now(), requested_reason=reason,
        )  # fmt: skip
        return job
    if job.requested != "cancel":
        job.requested, job.requested_reason, job.requested_by = "cancel", reason, actor
        job.cancel_requested_at = utc_now()
        job.version += 1
        session.flush()
        lifecycle.record_event(session, job_id, EventType.CANCEL_REQUESTED, actor=actor, message=reason)
        audit.record(session, actor=actor, action="job.cancel", project=job.project, target=job_id, message=reason)
        session.refresh(job)
    return job


def wish_checkpoint(session: Session, job_id: str, *, actor: str) -> Job:
    """Have the job's holder save now and go on; each wish is one checkpoint.

    Raises IllegalTransition when the job does not train, is about to stop, or its script can't save on request. The
    caller nudges the node after the commit.
    """
    job = lifecycle.load_for_change(session, job_id)
    if job.state not in SAVING:
        _refuse_to_save(job, f"is {job.status}; only a job in {', '.join(SAVING)} can")
    if job.requested is not None:
        _refuse_to_save(job, f"is about to stop ({job.requested} requested), which saves by itself where it can")
    if job.framework == hyperparameters.CUSTOM and not _saves_on_request(session, job):
        _refuse_to_save(
            job, "runs a script that has not said that it can save on request; call "
            "trainyard.hooks.init(can_checkpoint=True) and ask run.should_checkpoint() in its loop",
        )  # fmt: skip
    job.checkpoint_requests += 1
    job.version += 1
    session.flush()
    lifecycle.record_event(session, job_id, EventType.CHECKPOINT_REQUESTED, actor=actor)
    audit.record(session, actor=actor, action="job.checkpoint", project=job.project, target=job_id)
    session.flush()
    session.refresh(job)
    return job


def _saves_on_request(session: Session, job: Job) -> bool:
    attempt = session.get(Attempt, (job.id, job.attempt))
    return attempt is not None and attempt.can_checkpoint is True


def _refuse_to_save(job: Job, why: str) -> NoReturn:
    raise IllegalTransition(f"job {job.id} cannot save a checkpoint now: it {why}")
