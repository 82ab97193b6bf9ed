"""What is left of jobs and checkpoints that nobody needs any more, because whoever should have deleted them died or
could not.
"""

import logging
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice

from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import TrainyardError
from app.models import Checkpoint, Job
from app.models.base import utc_now
from app.services.jobs import deletion
from app.storage.keys import checkpoint_key
from app.storage.storage import Storage

log = logging.getLogger(__name__)

# Longer than any upload may take, and than any attempt that was just starting from a retired one needs it.
AGE_LIMIT = timedelta(hours=24)
JOBS_PER_ROUND = 50  # a storage far away answers slowly, and a stopping coordinator waits for the round


class Sweep:
    """Goes through the storage a few jobs at a time, compares with the database, and deletes what is left over.

    Jobs that this database does not know are let alone: two installations may share a storage.
    """

    def __init__(self, db: Database, storage_url: str, *, age_limit: timedelta = AGE_LIMIT) -> None:
        self._db = db
        self._storage_url = storage_url
        self._age_limit = age_limit
        self._last = ""  # the job that the round before ended with

    def go_on(self, jobs: int = JOBS_PER_ROUND) -> int:
        """Look at the next jobs; returns how many things were deleted. A storage that fails is asked again later."""
        try:
            swept = deletion.finish_begun(self._db, self._storage)
            chosen = self._next_jobs(jobs)
        except (TrainyardError, ImportError, ValueError):  # the latter two: fsspec has no such storage here
            log.warning("the storage can't be searched for leftovers", exc_info=True)
            return 0
        for job_id in chosen:
            try:
                swept += self._sweep_job(job_id)
            except TrainyardError:
                log.warning("leftovers of %s could not be deleted yet", job_id, exc_info=True)
        return swept

    @cached_property
    def _storage(self) -> Storage:
        # Not at the start: a coordinator plans although its storage is configured wrong.
        return Storage(self._storage_url)

    def _next_jobs(self, count: int) -> list[str]:
        there = self._storage.names("jobs")
        chosen = list(islice((name for name in there if name > self._last), count))
        self._last = chosen[-1] if len(chosen) == count else ""
        with self._db.read() as session:
            return list(session.scalars(select(Job.id).where(Job.id.in_(chosen)).order_by(Job.id)))

    def _sweep_job(self, job_id: str) -> int:
        folder = f"jobs/{job_id}/checkpoints"
        # Named first, looked up then: what is recorded in between is too young anyway.
        leftovers = self._unneeded(job_id, self._storage.names(folder))
        for name in leftovers:
            log.info("deleting the leftover checkpoint %s of %s", name, job_id)
            self._storage.delete_tree(checkpoint_key(job_id, name))
        older = self._age_limit.total_seconds()
        halves = [self._storage.sweep(key, older_than_seconds=older) for key in (f"jobs/{job_id}", folder)]
        return len(leftovers) + sum(halves)

    def _unneeded(self, job_id: str, names: Iterable[str]) -> list[str]:
        """Those retired or never recorded long ago."""
        long_ago = utc_now() - self._age_limit
        with self._db.read() as session:
            query = select(Checkpoint.id, Checkpoint.deleted_at).where(Checkpoint.job_id == job_id)
            known = {row.id: row.deleted_at for row in session.execute(query)}
        found = []
        for name in names:
            since = known[name] if name in known else _made_at(name)
            if since is not None and since < long_ago:
                found.append(name)
        return found


def _made_at(checkpoint_id: str) -> datetime | None:
    """When an id of ours was made, which it says itself; None for a name that is no id of ours."""
    try:
        value = uuid.UUID(checkpoint_id.removeprefix("ckpt-"))
    except ValueError:
        return None
    if value.version != 7 or not checkpoint_id.startswith("ckpt-"):
        return None
    return datetime.fromtimestamp((value.int >> 80) / 1000, UTC)
