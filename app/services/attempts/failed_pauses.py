"""Pauses whose checkpoint could not be saved; supervisors import this, and not the other control requests' rules."""

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.events import EventType
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import audit, transitions


def withdraw(db: Database, work: WorkOrder, message: str) -> None:
    """Withdraw the pause request of a job whose checkpoint could not be saved: it continues, and an event says why.

    A no-op when the request has changed, or is a pause that need not save. Raises LeaseLost for a stale token.
    """
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        if job.fence != work.fence:
            raise LeaseLost(f"job {job.id} is no longer held with token {work.fence}")
        if job.requested != "pause" or job.pause_force or not job.pause_saves:
            return
        asked = job.requested_by
        job.requested, job.requested_reason = None, ""
        job.mark_changed()
        session.flush()
        why = f"continues, because its checkpoint could not be saved: {message}"
        data = {"asked_by": asked}
        transitions.record_event(
            session,
            job.id,
            EventType.PAUSE_FAILED,
            actor=work.actor,
            reason="checkpoint_failed",
            message=why,
            data=data,
        )
        audit.record(
            session,
            actor=work.actor,
            action="job.pause_failed",
            project=job.project,
            target=job.id,
            message=why,
            data=data,
        )
