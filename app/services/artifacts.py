"""The files of a job's result: what there is, and reading one from any offset."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.models import Artifact
from app.storage.keys import artifacts_key
from app.storage.storage import Storage

_PIECE = 256 * 1024


def listed(session: Session, job_id: str) -> Sequence[Artifact]:
    return session.scalars(select(Artifact).where(Artifact.job_id == job_id).order_by(Artifact.path)).all()


def find(session: Session, job_id: str, path: str) -> Artifact:
    """Only what was recorded at the job's end exists, whatever else lies in the storage."""
    artifact = session.get(Artifact, (job_id, path))
    if artifact is None:
        raise NotFound(f"job {job_id} has no artifact {path[:200]!r}")
    return artifact


def opened(storage: Storage, artifact: Artifact, *, start: int = 0) -> BinaryIO:
    """The file from an offset on; the caller closes it. Raises NotFound when it is gone."""
    return storage.open(artifacts_key(artifact.job_id, artifact.path), start)


def pieces(stream: BinaryIO, length: int) -> Iterator[bytes]:
    """The next ``length`` bytes, a little at a time; then the file is closed."""
    with stream:
        while length > 0 and (piece := stream.read(min(_PIECE, length))):
            length -= len(piece)
            yield piece
