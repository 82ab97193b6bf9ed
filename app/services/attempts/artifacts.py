"""Artifacts of a job: listing, recording, and reading from any offset."""

from collections.abc import Collection, Sequence
from typing import BinaryIO

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.outcomes import NewArtifact
from app.domain.lifecycle.states import HELD
from app.models import Artifact, Job
from app.storage.object_keys import (
    BadKey,
    artifact_key,
    folder_of_node_output,
    is_diagnosis,
    is_event_file,
    is_wandb_file,
)
from app.storage.storage import Storage

MODEL, NODES, TENSORBOARD, WANDB, DIAGNOSTICS, ALL = "model", "nodes", "tensorboard", "wandb", "diagnostics", "all"
# The finished model's files; the output of nodes other than that of rank 0; the run's event files; its file for
# `wandb sync`; stacks of hung ranks; all of them.
KINDS = (MODEL, NODES, TENSORBOARD, WANDB, DIAGNOSTICS, ALL)


def listed(session: Session, job_id: str, kind: str = MODEL) -> Sequence[Artifact]:
    """Artifacts of one of ``KINDS``, by path."""
    mine = (Artifact.job_id == job_id) & ~Artifact.pending
    found = session.scalars(select(Artifact).where(mine).order_by(Artifact.path)).all()
    return [artifact for artifact in found if kind in (ALL, _kind(artifact.path))]


def models_of(session: Session, job_ids: Collection[str]) -> dict[str, list[Artifact]]:
    """The files of the finished model of each of these jobs that has some, by path."""
    mine = Artifact.job_id.in_(job_ids) & ~Artifact.pending
    found: dict[str, list[Artifact]] = {}
    for artifact in session.scalars(select(Artifact).where(mine).order_by(Artifact.path)):
        if _kind(artifact.path) == MODEL:
            found.setdefault(artifact.job_id, []).append(artifact)
    return found


def find(session: Session, job_id: str, path: str) -> Artifact:
    """Find a recorded artifact; files in the storage without a row don't exist. Raises NotFound."""
    artifact = session.get(Artifact, (job_id, path))
    if artifact is None or artifact.pending:
        raise NotFound(f"job {job_id} has no artifact {path[:200]!r}")
    return artifact


def record(db: Database, *, job_id: str, fence: int, new: NewArtifact) -> None:
    """Record the current content of a file that grows while the job runs. Raises LeaseLost."""
    with db.write() as session:
        require_held(session, job_id, fence)
        session.merge(Artifact(job_id=job_id, path=new.path, size_bytes=new.size_bytes, sha256=new.sha256))


def require_held(session: Session, job_id: str, fence: int) -> None:
    """Raises LeaseLost unless the attempt with this fence may add to the job."""
    held = (Job.id == job_id, Job.fence == fence, Job.status.in_(HELD))
    if session.scalar(select(Job.id).where(*held)) is None:
        raise LeaseLost(f"job {job_id} may no longer be added to")


def opened(storage: Storage, artifact: Artifact, *, start: int = 0) -> BinaryIO:
    """Open the file at an offset; the caller closes it. Raises NotFound when it was deleted."""
    try:
        return storage.open(artifact_key(artifact.job_id, artifact.path), start)
    except BadKey as error:  # the file was replaced by a link that leaves the storage
        raise NotFound(f"job {artifact.job_id} has no artifact {artifact.path[:200]!r} any more") from error


def _kind(path: str) -> str:
    if is_event_file(path):
        return TENSORBOARD
    if is_wandb_file(path):
        return WANDB
    if folder_of_node_output(path):
        return NODES
    return DIAGNOSTICS if is_diagnosis(path) else MODEL
