"""Where the weights lie that a job takes from another job of its project: a checkpoint, or the result."""

from dataclasses import dataclass

from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import NotFound
from app.domain.spec.inference import ModelReference
from app.models import Artifact, Checkpoint, Job
from app.services.attempts.checkpoints import ResumeCandidate
from app.storage.beneath import Content
from app.storage.keys import is_run_file


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """The files of a job's result: path → size and digest."""

    job_id: str
    files: dict[str, Content]


def find(db: Database, project: str, model: ModelReference) -> ResumeCandidate | StoredResult | None:
    """None for a job that uses the weights of its base model alone. Raises NotFound when they were deleted."""
    if model.job_id is None:
        return None
    with db.read() as session:
        job = session.get(Job, model.job_id)
        if job is None or job.project != project:
            raise NotFound(f"the project {project} has no job {model.job_id}")
        if model.checkpoint_id is None:
            rows = session.scalars(select(Artifact).where(Artifact.job_id == job.id, ~Artifact.pending))
            files = {each.path: Content(each.size_bytes, each.sha256) for each in rows if not is_run_file(each.path)}
            if not files:
                raise NotFound(f"job {job.id} has no result")
            return StoredResult(job_id=job.id, files=files)
        found = session.get(Checkpoint, model.checkpoint_id)
        if found is None or found.deleted_at is not None or found.job_id != job.id:
            raise NotFound(f"job {job.id} has no checkpoint {model.checkpoint_id}")
        return ResumeCandidate(
            checkpoint_id=found.id,
            job_id=job.id,
            uri=found.uri,
            sha256=found.sha256,
            step=found.step,
            world_size=found.world_size,
        )
