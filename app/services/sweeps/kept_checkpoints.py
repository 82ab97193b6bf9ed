"""Which checkpoints outlive a sweep: those of its best trials; the others are deleted when it ends.

Rows are retired in the sweep's transactions, files after them; the coordinators delete files that an interrupted run
has left.
"""

import logging
from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import TrainyardError
from app.domain.lifecycle.states import TERMINAL
from app.models import Checkpoint, Job, Sweep, Trial
from app.services.attempts import checkpoints
from app.services.lifecycle import transitions
from app.services.requests.control_plane import ControlPlane
from app.storage.object_keys import checkpoint_key

# Jobs in one transaction, which blocks other writers on SQLite.
JOBS_AT_ONCE, ROWS_AT_ONCE = 50, 1_000

logger = logging.getLogger(__name__)


def retire_some(session: Session, sweep: Sweep, kept: Collection[int]) -> list[str]:
    """Retire checkpoints of some trials that are not ``kept``; the keys whose files are to be deleted.

    Empty: there are none left, but for those that a job outside of the sweep starts from.
    """
    query = (
        select(Checkpoint.job_id, Checkpoint.id)
        .join(Trial, Trial.job_id == Checkpoint.job_id)
        .join(Job, Job.id == Checkpoint.job_id)
        .where(
            Trial.sweep_id == sweep.id,
            Trial.number.not_in(kept),
            Checkpoint.deleted_at.is_(None),
            Job.status.in_(TERMINAL),
        )
        .order_by(Checkpoint.job_id)
        .limit(ROWS_AT_ONCE)
    )
    found: dict[str, set[str]] = {}
    for row in session.execute(query):
        if row.job_id not in found and len(found) == JOBS_AT_ONCE:
            break
        found.setdefault(row.job_id, set()).add(row.id)
    keys = []
    for job_id, ids in found.items():
        gone = checkpoints.retire_unneeded(session, transitions.load_for_change(session, job_id), ids)
        keys += [checkpoint_key(job_id, checkpoint_id) for checkpoint_id in gone]
    return keys


def delete_files(plane: ControlPlane, keys: list[str]) -> None:
    """A failure of the storage is logged; what is left is found as an orphan."""
    for key in keys:
        try:
            plane.storage.delete_tree(key)
        except TrainyardError:
            logger.warning("%s could not be deleted yet", key, exc_info=True)
