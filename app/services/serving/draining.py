"""Ending one replica without an answer lost: one that serves finishes what it has, any other is cancelled."""

from sqlalchemy.orm import Session

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job, Replica
from app.models.base import utc_now
from app.services.jobs.control import requests as control_requests
from app.services.lifecycle import transitions
from app.services.serving.history import ACTOR

DRAIN = "drain"  # job.requested


def request(session: Session, replica: Replica, *, reason: str) -> Job | None:
    """Have the replica drained, which gets no new requests from now on. Idempotent.

    The caller has locked the service, and nudges the node of the job that this returns after the commit.
    """
    job = transitions.load_for_change(session, replica.job_id)
    if replica.drain_requested_at is None:
        replica.drain_requested_at = utc_now()
    if job.state in TERMINAL or job.requested is not None:
        return None  # what was requested ends the attempt: if the job waits again then, the next step cancels it
    if job.state is not JobState.SERVING:
        cancelled = control_requests.request_cancel(session, job.id, actor=ACTOR, reason=reason)
        return cancelled if cancelled.requested is not None else None
    job.requested, job.requested_reason, job.requested_by = DRAIN, reason, ACTOR
    job.mark_changed()
    session.flush()
    transitions.record_event(session, job.id, EventType.DRAIN_REQUESTED, actor=ACTOR, message=reason)
    session.refresh(job)
    return job
