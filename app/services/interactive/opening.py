"""Opening the sandbox of a running attempt: asked of its supervisors, which record where they are reached."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from app.domain.errors import Conflict, IllegalTransition, SandboxNotOpen
from app.domain.lifecycle.states import RUNNING
from app.models import Job
from app.services.attempts import interactive_endpoints
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from app.services.interactive.attending import attempt_ended
from app.services.lifecycle import transitions
from app.services.requests.control_plane import ControlPlane

WAIT_SECONDS = 10.0
QUICK_SECONDS, QUICK_POLL_SECONDS, POLL_SECONDS = 1.0, 0.02, 0.1


def endpoint_of(
    plane: ControlPlane,
    job_id: str,
    *,
    rank: int,
    waiting: Callable[[], AbstractContextManager[None]],
    seconds: float = WAIT_SECONDS,
) -> SandboxEndpoint:
    """Where the part with this rank is reached; waits until its supervisor has opened it, within ``waiting``.

    Raises IllegalTransition when the attempt does not run, Conflict when its sandbox can't be opened, SandboxNotOpen
    when it is not in time. The caller has found the job.
    """
    with plane.db.read() as session:
        found = interactive_endpoints.of(session, job_id, rank=rank)
    if found is None:
        with waiting():
            found = _opened(plane, job_id, rank, seconds)
    if not found.port:
        raise Conflict(f"the sandbox of job {job_id} can't be reached: {found.message}")
    return found


def _opened(plane: ControlPlane, job_id: str, rank: int, seconds: float) -> SandboxEndpoint:
    attempt = _ask(plane, job_id)
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        with plane.db.read() as session:
            found = interactive_endpoints.of(session, job_id, rank=rank)
            job = session.get(Job, job_id) if found is None else None
        if found is not None:
            return found
        if job is None or job.attempt != attempt or job.state not in RUNNING:
            raise IllegalTransition(attempt_ended(job, attempt) if job is not None else f"no job {job_id}")
        time.sleep(QUICK_POLL_SECONDS if waited < QUICK_SECONDS else POLL_SECONDS)
    raise SandboxNotOpen(
        f"the sandbox of job {job_id} is not open after {seconds:g} s; while a job is PREPARING it has none yet, and a "
        "node may be busy: try again"
    )


def _ask(plane: ControlPlane, job_id: str) -> int:
    """Have the nodes of the running attempt open it; returns its number."""
    with plane.db.write() as session:
        job = transitions.load_for_change(session, job_id)
        require_running(job)
        job.interactive_attempt = job.attempt
    plane.nudge(job)
    return job.attempt


def require_running(job: Job) -> None:
    """Raises IllegalTransition for a job without processes."""
    if job.state not in RUNNING:
        raise IllegalTransition(f"job {job.id} is {job.status}; sessions reach jobs that run")
