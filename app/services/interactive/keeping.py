"""Letting go of a sandbox that stays after a failure of its script."""

from app.domain.errors import IllegalTransition
from app.domain.lifecycle.states import RUNNING
from app.models import Job
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.jobs import details, lookup
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored


def release(plane: ControlPlane, caller: Caller, job_id: str, *, on_written: OnWritten = not_stored) -> Job:
    """Have the attempt end as it would have without being kept; idempotent.

    Raises IllegalTransition for a job that is not kept.
    """
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = transitions.load_for_change(session, job_id)
        if job.state not in RUNNING or job.kept_until is None:
            raise IllegalTransition(
                f"job {job.id} is {job.status}, and nothing of it is kept after a failure; release is for jobs whose "
                "kept_until is set (interactive_config.keep_on_failure_seconds)"
            )
        if job.release_attempt != job.attempt:
            job.release_attempt, job.updated_at = job.attempt, utc_now()
            job.mark_changed()
            session.flush()
            audit.record(session, actor=caller.actor, action="job.release", project=job.project, target=job.id, data={})
        on_written(session, details.changed(session, job))
    plane.nudge(job)
    return job
