"""Commands for a job that exists: cancel, pause, resume, save a checkpoint, preempt. One transaction each."""

from app.models import Job
from app.security.permissions import Caller
from app.services.jobs import control_requests, details, lookup
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import Remember, forget
from app.services.scheduling import preemption


def cancel(plane: ControlPlane, caller: Caller, job_id: str, *, reason: str = "", remember: Remember = forget) -> Job:
    """Cancel at once what nobody works on, else wish it; idempotent. Raises IllegalTransition when it has ended."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.wish_cancel(session, job_id, actor=caller.actor, reason=reason)
        remember(session, details.changed(session, job))
    if job.requested == "cancel":
        plane.nudge(job)
    return job


def pause(
    plane: ControlPlane, caller: Caller, job_id: str, *, saves: bool = True, force: bool = False,
    remember: Remember = forget,
) -> Job:  # fmt: skip
    """Pause at once what nobody works on, else wish it; idempotent. Raises IllegalTransition when it can't pause."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.wish_pause(session, job_id, actor=caller.actor, saves=saves, force=force)
        remember(session, details.changed(session, job))
    if job.requested == "pause":
        plane.nudge(job)
    return job


def resume(
    plane: ControlPlane, caller: Caller, job_id: str, *, checkpoint_id: str = "", from_best: bool = False,
    remember: Remember = forget,
) -> Job:  # fmt: skip
    """Put a paused job back into the queue, where the planner's next look finds it.

    Raises IllegalTransition for one that is not PAUSED, BadSpec for a checkpoint that it can't go on from.
    """
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.resume(
            session, job_id, actor=caller.actor, checkpoint_id=checkpoint_id, from_best=from_best
        )  # fmt: skip
        remember(session, details.changed(session, job))
    return job


def save_now(plane: ControlPlane, caller: Caller, job_id: str, *, remember: Remember = forget) -> Job:
    """Have a running job save a checkpoint and go on. Raises IllegalTransition when it can't."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = control_requests.wish_checkpoint(session, job_id, actor=caller.actor)
        remember(session, details.changed(session, job))
    plane.nudge(job)
    return job


def preempt(plane: ControlPlane, caller: Caller, job_id: str, *, reason: str) -> Job:
    """Have a running job save and give its devices up. Raises IllegalTransition when it does not run."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = preemption.wish_preempt(session, job_id, actor=caller.actor, reason=reason)
    plane.nudge(job)
    return job
