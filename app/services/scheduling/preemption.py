"""Preemption: a running job saves, gives its devices up, and ends or goes back to the queue, as its document says."""

from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import RUNNING, JobState
from app.models import Job
from app.services.lifecycle import audit, transitions

# An export is nearly done and saves nothing: it is cheaper to wait for its end.
PREEMPTIBLE = RUNNING - {JobState.EXPORTING}


def wish_preempt(session: Session, job_id: str, *, actor: str, reason: str) -> Job:
    """Ask the holder of a running job to give its devices up; a job that is about to stop anyway is left to that.

    Only that a pause is carried out now whether it can be saved or not. ``reason`` is what its history says. Never
    counted as a failure. Raises IllegalTransition when the job does not run. The caller nudges the node after the
    commit.
    """
    job = transitions.load_for_change(session, job_id)
    if job.state not in PREEMPTIBLE:
        raise IllegalTransition(
            f"job {job_id} is {job.status} and cannot be preempted; only one in {', '.join(sorted(PREEMPTIBLE))} can"
        )
    if job.requested is not None:
        transitions.insist_on_pause(session, job, actor=actor, reason=reason)
        return job
    job.requested, job.requested_reason, job.requested_by = "preempt", reason, actor
    job.mark_changed()
    session.flush()
    transitions.record_event(session, job_id, EventType.PREEMPT_REQUESTED, actor=actor, message=reason)
    audit.record(session, actor=actor, action="job.preempt", project=job.project, target=job_id, message=reason)
    session.flush()
    session.refresh(job)
    return job
