"""Celery's `revoke` of a job's id: the wish to cancel it, by whoever may speak on the broker."""

import logging
from collections.abc import Callable

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound
from app.services.jobs import control_requests

ACTOR = "revoke"
JOB_ID_PREFIX = "job-"

logger = logging.getLogger(__name__)


def is_job_id(task_id: str) -> bool:
    """Whether this id of a task is one of ours and not one of Celery's."""
    return task_id.startswith(JOB_ID_PREFIX)


def revoke_job(db: Database, job_id: str, nudge: Callable[[str, str], None]) -> None:
    """Wish the job cancelled and nudge (job, node) its nodes. What the database raises goes through.

    Every worker hears a revoke, so all but the first find it done.
    """
    try:
        with db.write() as session:
            job = control_requests.wish_cancel(session, job_id, actor=ACTOR, reason="revoked through Celery")
    except (Conflict, NotFound) as refusal:
        logger.info("revoke refused: %s", refusal)
        return
    if job.requested == "cancel":
        for node in job.node_names:
            nudge(job_id, node)
