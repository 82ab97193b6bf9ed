"""Preemption: a running job saves, releases its devices, and is requeued or ends, as its document says."""

from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import RUNNING, JobState
from app.models import Job
from app.services.lifecycle import audit, transitions

# An exporting job is nearly done and can't save: waiting for its end is cheaper.
PREEMPTIBLE = RUNNING - {JobState.EXPORTING}


def request_preemption(session: Session, job_id: str, *, actor: str, reason: str) -> Job:
    """Request that a running job releases its devices; a job that is already asked to stop keeps that request.

    A pending pause becomes unconditional: it is carried out even if the job can't be saved. ``reason`` goes into the
    job's history. Preemption never counts as a failure. Raises IllegalTransition when the job does not run. The caller
    nudges the node after the commit.
    """
    job = transitions.load_for_change(session, job_id)
    if job.state not in PREEMPTIBLE:
        raise IllegalTransition(
            f"job {job_id} is {job.status} and cannot be preempted; only one in {', '.join(sorted(PREEMPTIBLE))} can"
        )
    if job.requested is not None:
        transitions.force_pause(session, job, actor=actor, reason=reason)
        return job
    job.requested, job.requested_reason, job.requested_by = "preempt", reason, actor
    job.mark_changed()
    session.flush()
    transitions.record_event(session, job_id, EventType.PREEMPT_REQUESTED, actor=actor, message=reason)
    audit.record(session, actor=actor, action="job.preempt", project=job.project, target=job_id, message=reason)
    session.flush()
    session.refresh(job)
    return job
