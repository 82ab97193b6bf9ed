"""What the jobs of a batch have stored: rows of their results or shards, in the order of the requests."""

import json
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence

from sqlalchemy import select

from app.domain.errors import NotFound
from app.domain.lifecycle.states import JobState
from app.models import Job, Shard
from app.services.batches.merging import Row
from app.services.requests.control_plane import ControlPlane
from app.storage.object_keys import artifacts_key

_SUFFIX, _STEM = ".jsonl", "part-"

logger = logging.getLogger(__name__)


def rows_of(plane: ControlPlane, job_id: str) -> Generator[Row]:
    """Of a job that has completed those of its result, since its shards are deleted then; of others all shards."""
    with plane.db.read() as session:
        job = session.get(Job, job_id)
        query = select(Shard.uri).where(Shard.job_id == job_id).order_by(Shard.number)
        uris = session.scalars(query).all()
    if job is not None and job.state is JobState.COMPLETED:
        yield from _in_folder(plane, artifacts_key(job_id))
        return
    for uri in uris:
        yield from _in_folder(plane, plane.storage.key_of(uri))


def _in_folder(plane: ControlPlane, key: str) -> Iterator[Row]:
    for part in _parts(plane, key):
        try:
            stream = plane.storage.open(part)
        except NotFound:
            logger.warning("%s is not in the storage any more; its requests count as without an answer", part)
            continue
        with stream:
            yield from _readable(part, stream)


def _readable(part: str, lines: Iterable[bytes]) -> Iterator[Row]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            logger.warning("%s has a row that can't be read; its request counts as without an answer", part)
            continue
        yield row


def _parts(plane: ControlPlane, key: str) -> Sequence[str]:
    files = [file.key for file in plane.storage.list(key)]
    return [each for each in files if each.endswith(_SUFFIX) and each.rpartition("/")[2].startswith(_STEM)]
