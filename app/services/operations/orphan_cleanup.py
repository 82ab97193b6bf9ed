"""Deletes what has expired, and orphaned files of jobs, checkpoints, shards and requests that were cut off."""

import logging
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice

from sqlalchemy import select

from app.database.engine import Database
from app.domain.batches.states import ENDED
from app.domain.errors import TrainyardError
from app.models import Artifact, Batch, BatchJob, Checkpoint, Job, Shard
from app.models.base import utc_now
from app.services.attempts import artifact_rows, checkpoints
from app.services.files import expiry
from app.services.jobs import deletion
from app.storage.object_keys import (
    NODE_OUTPUTS,
    USER_FILES,
    attempt_of_node_output,
    checkpoint_key,
    folder_of_node_output,
    node_outputs_key,
    shard_of,
    shards_key,
)
from app.storage.storage import Storage

log = logging.getLogger(__name__)

# Longer than any upload, and than an attempt needs to start from a just retired checkpoint.
AGE_LIMIT = timedelta(hours=24)
JOBS_PER_ROUND = 50  # remote storage is slow, and a stopping coordinator waits for the round


class OrphanSweep:
    """Compares the storage with the database, a few jobs per round, and deletes orphaned files.

    Jobs and uploaded files unknown to this database are left alone: two installations may share a storage.
    """

    def __init__(self, db: Database, storage_url: str, *, age_limit: timedelta = AGE_LIMIT) -> None:
        self._db = db
        self._storage_url = storage_url
        self._age_limit = age_limit
        self._last = ""  # the last job of the previous round
        self._expired = expiry.Cursor()
        self._last_project = ""  # whose unfinished files were deleted

    def run_round(self, jobs: int = JOBS_PER_ROUND) -> int:
        """Process the next jobs; returns the number of deletions. Storage failures are retried in later rounds."""
        try:
            swept = deletion.finish_begun(self._db, self._storage)
            swept += expiry.drop_expired(self._db, self._storage, self._expired)
            swept += self._sweep_unfinished()
            chosen = self._next_jobs(jobs)
        except (TrainyardError, ImportError, ValueError):  # the latter two: fsspec lacks the adapter
            log.warning("the storage can't be searched for orphaned files", exc_info=True)
            return 0
        for job_id in chosen:
            try:
                swept += self._sweep_job(job_id)
            except TrainyardError:
                log.warning("orphaned files of %s could not be deleted yet", job_id, exc_info=True)
        return swept

    @cached_property
    def _storage(self) -> Storage:
        # Opened lazily: a coordinator must plan even if its storage is misconfigured.
        return Storage(self._storage_url)

    def _sweep_unfinished(self) -> int:
        """Delete what uploads that were cut off have left in the folder of the next project."""
        projects = self._storage.names(USER_FILES)
        self._last_project = next((name for name in projects if name > self._last_project), "")
        if not self._last_project:
            return 0
        older = self._age_limit.total_seconds()
        return self._storage.sweep(f"{USER_FILES}/{self._last_project}", older_than_seconds=older)

    def _next_jobs(self, count: int) -> list[str]:
        there = self._storage.names("jobs")
        chosen = list(islice((name for name in there if name > self._last), count))
        self._last = chosen[-1] if len(chosen) == count else ""
        if not chosen:
            return []
        with self._db.query() as connection:
            return list(connection.scalars(select(Job.id).where(Job.id.in_(chosen)).order_by(Job.id)))

    def _sweep_job(self, job_id: str) -> int:
        folder = f"jobs/{job_id}/checkpoints"
        checkpoints.retire_released(self._db, job_id)  # of evaluations that ended without a supervisor
        # Listed before the query: checkpoints recorded in between are too young anyway.
        leftovers = self._unneeded(job_id, self._storage.names(folder))
        for name in leftovers:
            log.info("deleting the orphaned checkpoint %s of %s", name, job_id)
            self._storage.delete_tree(checkpoint_key(job_id, name))
        shards = shards_key(job_id)
        unneeded = self._unneeded_shards(job_id, self._storage.names(shards))
        for name in unneeded:
            log.info("deleting the orphaned shard %s of %s", name, job_id)
            self._storage.delete_tree(f"{shards}/{name}")
        outputs = node_outputs_key(job_id)
        unseen = self._unseen_outputs(job_id, self._storage.names(outputs))
        for name in unseen:
            log.info("deleting the orphaned output %s of %s", name, job_id)
            artifact_rows.forget(self._db, job_id, f"{NODE_OUTPUTS}/{name}")  # first: only listed folders come here
            self._storage.delete_tree(f"{outputs}/{name}")
        older = self._age_limit.total_seconds()
        folders = (f"jobs/{job_id}", folder, shards, outputs)
        halves = [self._storage.sweep(key, older_than_seconds=older) for key in folders]
        return len(leftovers) + len(unneeded) + len(unseen) + sum(halves)

    def _unseen_outputs(self, job_id: str, names: Sequence[str]) -> list[str]:
        """Outputs of nodes that no artifact lies in, of earlier attempts or of a job that has ended long ago."""
        if not names:
            return []
        with self._db.read() as session:
            job = session.get(Job, job_id)
            paths = session.scalars(select(Artifact.path).where(Artifact.job_id == job_id, ~Artifact.pending)).all()
        if job is None:
            return []
        seen = {folder_of_node_output(path) for path in paths}
        ended_long_ago = job.finished_at is not None and job.finished_at < utc_now() - self._age_limit
        found = {name: attempt_of_node_output(f"{NODE_OUTPUTS}/{name}") for name in names}
        return [
            name
            for name, attempt in found.items()
            if attempt is not None
            and f"{NODE_OUTPUTS}/{name}" not in seen
            and (ended_long_ago or attempt < job.attempt)
        ]

    def _unneeded_shards(self, job_id: str, names: Sequence[str]) -> list[str]:
        """All of a job that has ended before the age limit; else those that no attempt can record any more.

        A batch of requests reads the shards of its jobs when it ends, which may be days after them.
        """
        if not names:
            return []
        with self._db.read() as session:
            job = session.get(Job, job_id)
            rows = session.execute(select(Shard.number, Shard.fence).where(Shard.job_id == job_id))
            recorded = {(row.number, row.fence) for row in rows}
            batch = select(BatchJob.batch_id).join(Batch, Batch.id == BatchJob.batch_id)
            is_read_later = session.scalar(batch.where(BatchJob.job_id == job_id, Batch.status.not_in(ENDED)))
        if job is None:
            return []
        found = {name: shard_of(name) for name in names}
        ended_long_ago = job.finished_at is not None and job.finished_at < utc_now() - self._age_limit
        if ended_long_ago and not is_read_later:
            return [name for name, shard in found.items() if shard is not None]
        return [
            name
            for name, shard in found.items()
            if shard is not None and shard not in recorded and shard[1] < job.fence
        ]

    def _unneeded(self, job_id: str, names: Iterable[str]) -> list[str]:
        """The checkpoints that were retired, or created without being recorded, before the age limit."""
        long_ago = utc_now() - self._age_limit
        with self._db.read() as session:
            query = select(Checkpoint.id, Checkpoint.deleted_at).where(Checkpoint.job_id == job_id)
            known = {row.id: row.deleted_at for row in session.execute(query)}
        found = []
        for name in names:
            since = known[name] if name in known else _created_at(name)
            if since is not None and since < long_ago:
                found.append(name)
        return found


def _created_at(checkpoint_id: str) -> datetime | None:
    """The creation time encoded in a checkpoint id; None for other names."""
    try:
        value = uuid.UUID(checkpoint_id.removeprefix("ckpt-"))
    except ValueError:
        return None
    if value.version != 7 or not checkpoint_id.startswith("ckpt-"):
        return None
    return datetime.fromtimestamp((value.int >> 80) / 1000, UTC)
