"""Artifact rows of a finished model: written in several transactions if many, visible once the job has ended."""

import time
from collections.abc import Sequence

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import NewArtifact
from app.domain.lifecycle.states import HELD
from app.models import Artifact
from app.services.lifecycle import transitions
from app.storage.object_keys import NODE_OUTPUTS, folder_of_node_output

# Rows per transaction. On SQLite all other writers wait for it: about 20 ms, mostly disk time.
CHUNK = 500
# SQLite writers in other processes poll at most every 0.1 s: with a shorter pause they could starve.
PAUSE_SECONDS = 0.1


def prepare(db: Database, *, job_id: str, fence: int, artifacts: Sequence[NewArtifact]) -> None:
    """Write the rows of more files than one transaction should hold; they stay hidden until ``reveal``.

    Idempotent: a second call writes only the missing rows. Other parts of the attempt may be writing theirs. Raises
    LeaseLost.
    """
    if len(artifacts) <= CHUNK:
        return
    by_path = {each.path: each for each in artifacts}
    with db.read() as session:
        rows = session.execute(
            select(Artifact.path, Artifact.size_bytes, Artifact.sha256, Artifact.pending).where(
                Artifact.job_id == job_id
            )
        ).all()
    # Left over from an attempt that died half-way with other files.
    folder = folder_of_node_output(artifacts[0].path)
    own = [row for row in rows if row.pending and folder_of_node_output(row.path) == folder]
    stale = [row.path for row in own if row.path not in by_path]
    for row in rows:
        if row.path in by_path and (row.size_bytes, row.sha256) == _content(by_path[row.path]):
            del by_path[row.path]
    for first in range(0, len(stale), CHUNK):
        _replace(db, job_id, fence, stale[first : first + CHUNK], [])
    left = list(by_path.values())
    for first in range(0, len(left), CHUNK):
        chunk = left[first : first + CHUNK]
        _replace(db, job_id, fence, [each.path for each in chunk], chunk)


def hide(session: Session, job_id: str, artifacts: Sequence[NewArtifact]) -> None:
    """Write the rows of a part of the attempt with this transaction; they stay hidden until ``reveal``."""
    if 0 < len(artifacts) <= CHUNK:
        _write(session, job_id, [each.path for each in artifacts], artifacts, pending=True)


def reveal(session: Session, job_id: str, artifacts: Sequence[NewArtifact], folders: Sequence[str] = ()) -> None:
    """Make the rows visible with this transaction; if they are few, they are also written in it.

    ``folders`` are those of the parts whose rows are hidden, and complete. With any files, deletes the rows that are
    pending still: they are of earlier attempts, or of parts that were lost.
    """
    pending = (Artifact.job_id == job_id) & Artifact.pending
    for folder in folders:
        session.execute(update(Artifact).where(pending, _is_below(folder)).values(pending=False))
    if len(artifacts) > CHUNK:
        session.execute(update(Artifact).where(pending, ~_is_below(NODE_OUTPUTS)).values(pending=False))
        # The result may have a folder of this name, too, which SQL alone can't tell from those of other nodes.
        own = [each.path for each in artifacts if each.path.startswith(f"{NODE_OUTPUTS}/")]
        for first in range(0, len(own), CHUNK):
            paths = own[first : first + CHUNK]
            session.execute(update(Artifact).where(pending, Artifact.path.in_(paths)).values(pending=False))
    if artifacts or folders:
        session.execute(delete(Artifact).where(pending))
    if 0 < len(artifacts) <= CHUNK:
        _write(session, job_id, [each.path for each in artifacts], artifacts, pending=False)


def forget(db: Database, job_id: str, folder: str) -> None:
    """Delete the rows below a folder that no attempt writes to any more, if they were never revealed."""
    with db.write() as session:
        session.execute(delete(Artifact).where(Artifact.job_id == job_id, Artifact.pending, _is_below(folder)))


def _replace(db: Database, job_id: str, fence: int, paths: Sequence[str], artifacts: Sequence[NewArtifact]) -> None:
    with db.write() as session:
        job = transitions.load_for_change(session, job_id)
        if job.fence != fence or job.state not in HELD:
            raise LeaseLost(f"job {job_id} may no longer be added to")
        _write(session, job_id, paths, artifacts, pending=True)
    if db.engine.dialect.name == "sqlite":
        time.sleep(PAUSE_SECONDS)


def _write(
    session: Session, job_id: str, paths: Sequence[str], artifacts: Sequence[NewArtifact], *, pending: bool
) -> None:
    session.execute(delete(Artifact).where(Artifact.job_id == job_id, Artifact.path.in_(paths)))
    if artifacts:
        session.execute(
            insert(Artifact),
            [
                {"job_id": job_id, "path": a.path, "size_bytes": a.size_bytes, "sha256": a.sha256, "pending": pending}
                for a in artifacts
            ],
        )


def _is_below(folder: str) -> ColumnElement[bool]:
    return func.substr(Artifact.path, 1, len(folder) + 1) == f"{folder}/"


def _content(artifact: NewArtifact) -> tuple[int, str]:
    return artifact.size_bytes, artifact.sha256
