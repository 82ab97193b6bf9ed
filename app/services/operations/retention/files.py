"""Retention of jobs, checkpoints and logs with their files, by age or total size.

Rows are changed first and files are deleted after the commit: readers ignore retired checkpoints, and the coordinators'
orphan sweep deletes files left by an interrupted run.
"""

import logging
from collections.abc import Collection

from sqlalchemy import func, select

from app.domain.errors import Conflict, NotFound, TrainyardError
from app.domain.lifecycle.states import TERMINAL
from app.models import Checkpoint, Job
from app.services.attempts import checkpoints
from app.services.jobs import deletion
from app.services.lifecycle import transitions
from app.services.operations.retention.context import RETENTION, Pruned, RetentionContext
from app.storage.object_keys import attempts_key, checkpoint_key, job_key

log = logging.getLogger(__name__)


def jobs(context: RetentionContext) -> Pruned:
    """Delete finished jobs with all of their data; a job that an active one reads from is retained."""
    pruned = Pruned()
    for ids in context.ended_before(context.settings.jobs_days):
        for job_id in ids:
            pruned += _job(context, job_id)
    return pruned


def old_checkpoints(context: RetentionContext) -> Pruned:
    pruned = Pruned()
    for ids in context.ended_before(context.settings.checkpoints_days):
        with context.plane.db.read() as session:
            of_them = Checkpoint.job_id.in_(ids) & Checkpoint.deleted_at.is_(None)
            rows = session.execute(select(Checkpoint.job_id, Checkpoint.id).where(of_them)).all()
        for job_id in sorted({row.job_id for row in rows}):
            pruned += _retire(context, job_id, {row.id for row in rows if row.job_id == job_id})
    return pruned


def checkpoints_over_budget(context: RetentionContext) -> Pruned:
    """Delete checkpoints of the first finished jobs, oldest first. Those of active jobs count, but are retained."""
    with context.plane.db.read() as session:
        exists = Checkpoint.deleted_at.is_(None)
        total = session.scalar(select(func.sum(Checkpoint.size_bytes)).where(exists)) or 0
        excess = int(total) - context.settings.checkpoints_max_bytes
        rows = (
            session.execute(
                select(Checkpoint.job_id, Checkpoint.id)
                .join(Job, Job.id == Checkpoint.job_id)
                .where(exists, Job.status.in_(TERMINAL))
                .order_by(Job.finished_at, Job.id, Checkpoint.step, Checkpoint.id)
            ).all()
            if excess > 0
            else []
        )
    pruned = Pruned()
    for row in rows:
        if pruned.bytes >= excess:
            break
        pruned += _retire(context, row.job_id, {row.id})
    return pruned


def old_logs(context: RetentionContext) -> Pruned:
    batches = context.ended_before(context.settings.logs_days)
    return sum((_drop_logs(context, job_id) for ids in batches for job_id in ids), Pruned())


def logs_over_budget(context: RetentionContext) -> Pruned:
    """Delete logs of the first finished jobs; sizes come from the storage."""
    with context.plane.db.read() as session:
        ended = session.scalars(select(Job.id).where(Job.status.in_(TERMINAL)).order_by(Job.finished_at, Job.id)).all()
    sizes = {job_id: _stored_bytes(context, attempts_key(job_id)) for job_id in ended}
    excess = sum(sizes.values()) - context.settings.logs_max_bytes
    pruned = Pruned()
    for job_id in ended:
        if pruned.bytes >= excess:
            break
        if sizes[job_id]:
            pruned += _drop_logs(context, job_id)
    return pruned


def _job(context: RetentionContext, job_id: str) -> Pruned:
    size = _stored_bytes(context, job_key(job_id))
    if context.dry_run:
        return Pruned(count=1, bytes=size)
    try:
        deletion.remove(context.plane, RETENTION, job_id, artifacts=True)
    except NotFound:
        return Pruned()  # deleted concurrently
    except Conflict as needed:
        log.info("not pruned: %s", needed)
        return Pruned(kept=1)
    return Pruned(count=1, bytes=size)


def _retire(context: RetentionContext, job_id: str, ids: Collection[str]) -> Pruned:
    """Retire these checkpoints, except those that an active job starts from."""
    if context.dry_run:
        with context.plane.db.read() as session:
            gone = checkpoints.unneeded(session, job_id, ids)
    else:
        with context.plane.db.write() as session:
            gone = checkpoints.retire_unneeded(session, transitions.load_for_change(session, job_id), ids)
        for checkpoint_id in gone:
            _delete(context, checkpoint_key(job_id, checkpoint_id))
    return Pruned(count=len(gone), bytes=sum(gone.values()), kept=len(ids) - len(gone))


def _drop_logs(context: RetentionContext, job_id: str) -> Pruned:
    key = attempts_key(job_id)
    size = _stored_bytes(context, key)
    if size and not context.dry_run:
        _delete(context, key)
    return Pruned(count=1 if size else 0, bytes=size)


def _stored_bytes(context: RetentionContext, key: str) -> int:
    return sum(file.size_bytes for file in context.plane.storage.list(key))


def _delete(context: RetentionContext, key: str) -> None:
    """Delete files; a storage failure is logged and does not stop the run: the next run or the sweep retries."""
    try:
        context.plane.storage.delete_tree(key)
    except TrainyardError:
        log.warning("%s could not be deleted yet", key, exc_info=True)
