"""Where the weights lie that a job takes from another job of its project: a checkpoint, or the result."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import NotFound
from app.domain.lifecycle.events import EventType
from app.domain.spec.inference import ModelReference
from app.models import Artifact, Checkpoint, Job, JobEvent
from app.services.attempts import checkpoints
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.lifecycle import transitions
from app.storage.beneath import Content
from app.storage.keys import is_run_file
from config.redaction import masked_forms
from trainyard.protocol.messages import MAX_MESSAGE, clean_text

SUBMIT_ANOTHER = "submit again with another model.checkpoint"


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
        if found is not None and found.job_id == job.id and (damage := damage_of(session, found)) is not None:
            raise NotFound(f"{damage}; it is retired: {SUBMIT_ANOTHER}")
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


def retire_damaged(db: Database, stored: ResumeCandidate, reason: str, *, actor: str, found_by: str) -> bool:
    """Retire a checkpoint whose files have proved damaged, so that its job's best and newest are others from now on.

    In a transaction of its own, which locks the job that saved it; that job's history says why, and which job has
    ``found_by`` using it. False, and nothing changes, where the checkpoint or its job was deleted meanwhile.
    """
    # The names of files in the reason are of a job that trained.
    message = masked_forms(f"checkpoint at step {stored.step} can't be used, as {found_by} has found: {reason}")
    with db.write() as session:
        job = session.get(Job, stored.job_id, with_for_update=True, populate_existing=True)
        if job is None or checkpoints.lock(session, stored.checkpoint_id) is None:
            return False
        retired = checkpoints.retire_unusable(session, job, stored.checkpoint_id)
        transitions.record_event(
            session,
            job.id,
            EventType.RESUME_FALLBACK,
            actor=actor,
            message=clean_text(message, MAX_MESSAGE),
            data={"checkpoint_id": stored.checkpoint_id, "found_by": found_by, "retired": retired},
        )
    return retired


def damage_of(session: Session, checkpoint: Checkpoint) -> str | None:
    """Why a checkpoint was retired as damaged, as its job's history says; None for one that is there or was pruned."""
    events = select(JobEvent).where(JobEvent.job_id == checkpoint.job_id, JobEvent.type == EventType.RESUME_FALLBACK)
    if checkpoint.deleted_at is None:
        return None
    # A storage that could not be reached is such an event, too, of a checkpoint that may be pruned later.
    retired = (each for each in session.scalars(events) if each.data.get("retired") is True)
    return next((each.message for each in retired if each.data.get("checkpoint_id") == checkpoint.id), None)
