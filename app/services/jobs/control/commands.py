"""Commands for a job that exists: cancel, pause, resume, save a checkpoint, preempt. One transaction each."""

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.security.permissions import Caller
from app.services.jobs import details, lookup
from app.services.jobs.control import requests as control_requests
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.scheduling import preemption


def cancel(
    plane: ControlPlane, caller: Caller, job_id: str, *, reason: str = "", on_written: OnWritten = not_stored
) -> Job:
    """Cancel an idle job at once, else request it; idempotent. Raises IllegalTransition when it has ended."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.request_cancel(session, job_id, actor=caller.actor, reason=reason)
        on_written(session, details.changed(session, job))
    if job.requested == "cancel":
        plane.nudge(job)
    return job


def pause(
    plane: ControlPlane,
    caller: Caller,
    job_id: str,
    *,
    saves: bool = True,
    force: bool = False,
    on_written: OnWritten = not_stored,
) -> Job:
    """Pause an idle job at once, else request it; idempotent. Raises IllegalTransition when it can't pause."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.request_pause(session, job_id, actor=caller.actor, saves=saves, force=force)
        on_written(session, details.changed(session, job))
    if job.requested == "pause":
        plane.nudge(job)
    return job


def resume(
    plane: ControlPlane,
    caller: Caller,
    job_id: str,
    *,
    checkpoint_id: str = "",
    from_best: bool = False,
    on_written: OnWritten = not_stored,
) -> Job:
    """Requeue a paused job for the planner's next pass; one that has not stopped for its pause yet trains on.

    Raises IllegalTransition for any other, and BadSpec for a checkpoint that it can't continue from.
    """
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.resume(
            session, job_id, actor=caller.actor, checkpoint_id=checkpoint_id, from_best=from_best
        )
        on_written(session, details.changed(session, job))
    if job.state is not JobState.QUEUED:  # it runs, and its supervisor has a pause to forget
        plane.nudge(job)
    return job


def save_now(plane: ControlPlane, caller: Caller, job_id: str, *, on_written: OnWritten = not_stored) -> Job:
    """Request that a running job saves a checkpoint and continues. Raises IllegalTransition when it can't."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.request_checkpoint(session, job_id, actor=caller.actor)
        on_written(session, details.changed(session, job))
    plane.nudge(job)
    return job


def preempt(
    plane: ControlPlane, caller: Caller, job_id: str, *, reason: str, on_written: OnWritten = not_stored
) -> Job:
    """Have a running job save and give its devices up. Raises IllegalTransition when it does not run."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = preemption.request_preemption(session, job_id, actor=caller.actor, reason=reason)
        on_written(session, details.changed(session, job))
    plane.nudge(job)
    return job
