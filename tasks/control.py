"""Remote-control commands: `revoke` of a job's id becomes a cancel request, `nudge` tells a node about a new request.

Handlers run in the worker's own loop and must return at once; database access runs on a thread.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from celery.utils.collections import AttributeDict
from celery.worker import control
from celery.worker.control import control_command, inspect_command

from app.services.jobs.control import revocation
from app.services.requests import wakeups
from tasks import checked_transport
from tasks.celery_app import Runtime

TRIES = 15
PAUSE_SECONDS = 2.0

logger = logging.getLogger(__name__)

_celery_revoke = control.revoke


@control_command(name="revoke", variadic="task_id", signature="[id1 [id2 [... [idN]]]]")
def revoke(state: AttributeDict, task_id: str | Iterable[str], **options: Any) -> object:
    """Revoke tasks by id; the id of a job cancels the job."""
    ids = {task_id} if isinstance(task_id, str) else set(task_id or ())
    jobs = sorted(filter(revocation.is_job_id, ids))
    if jobs:
        # One thread per command: revokes are rare and must not wait for each other.
        runtime: Runtime = state.app.runtime
        threading.Thread(target=_revoke_jobs, args=(runtime, jobs), name="revoke", daemon=True).start()
    tasks = ids.difference(jobs)
    if tasks or not jobs:
        return _celery_revoke(state, list(tasks), **options)
    return {"ok": f"cancelling {', '.join(jobs)}"}


@control_command(name="terminate", variadic="task_id", signature="<signal> [id1 [id2 [... [idN]]]]")
def terminate(state: AttributeDict, signal: str, task_id: str | Iterable[str], **options: Any) -> object:
    """Terminate tasks by id; the id of a job cancels the job."""
    return revoke(state, task_id, terminate=True, signal=signal, **options)


@control_command(name=wakeups.NUDGE, args=[("job_id", str)], signature="<job_id>")
def nudge(state: AttributeDict, job_id: str, **_: Any) -> dict[str, str]:
    """Read the control requests of a job on this node now, not at the next renewal of its lease."""
    state.app.runtime.on_nudge(job_id)
    return {"ok": job_id}


@inspect_command()
def rejected(_state: AttributeDict, **_: Any) -> list[dict[str, Any]]:
    """Messages that this worker dropped since its start, by queue or channel and reason."""
    return [
        {"origin": origin, "reason": reason, "messages": count}
        for (origin, reason), count in sorted(checked_transport.rejected.items())
    ]


def _revoke_jobs(runtime: Runtime, job_ids: list[str]) -> None:
    for job_id in job_ids:
        for _ in range(TRIES):
            try:
                revocation.revoke_job(runtime.database, job_id, runtime.dispatcher.nudge)
                break
            except Exception:
                logger.exception("job %s could not be revoked yet", job_id)
                time.sleep(PAUSE_SECONDS)
