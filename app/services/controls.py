"""Wishes about a job: a column that the holder of the job brings about, or at once when nobody holds it."""

from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition
from app.domain.events import EventType
from app.domain.job_state import TERMINAL, UNHELD, JobState
from app.models import Job
from app.models.base import utc_now
from app.services import lifecycle


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
        session.refresh(job)
    return job
