"""Where the weights lie that a job takes from another job of its project, and which it takes where they are damaged."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import HELD
from app.domain.spec.inference import BEST_CHECKPOINT, LATEST_CHECKPOINT, Inference, ModelReference
from app.domain.spec.model import JobDocument
from app.models import Artifact, Checkpoint, Job, JobEvent
from app.services.attempts import checkpoints
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.lifecycle import transitions
from app.storage.beneath import FileDigest
from app.storage.object_keys import is_run_file
from config.redaction import masked_forms
from trainyard.protocol.messages import MAX_MESSAGE, clean_text

SUBMIT_ANOTHER = "submit again with another model.checkpoint"


class RetiredCheckpoint(NotFound):
    """A checkpoint that has proved damaged."""


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """The files of a job's result: path → size and digest."""

    job_id: str
    files: dict[str, FileDigest]


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
            files = {each.path: FileDigest(each.size_bytes, each.sha256) for each in rows if not is_run_file(each.path)}
            if not files:
                raise NotFound(f"job {job.id} has no result")
            return StoredResult(job_id=job.id, files=files)
        found = session.get(Checkpoint, model.checkpoint_id)
        if found is not None and found.job_id == job.id and (damage := damage_of(session, found)) is not None:
            raise RetiredCheckpoint(f"{damage}; it is retired")
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


def fall_back(
    db: Database, *, job_id: str, fence: int, damaged: ModelReference, reason: str, actor: str
) -> ModelReference:
    """Give the job what is now the best or newest checkpoint, by the rule that it was submitted with, and say so.

    In one transaction, which pins that checkpoint. The caller has retired the damaged one, and has no stored shards:
    results of two models must not be in one output. Raises LeaseLost for a stale ``fence``, and NotFound where there is
    no other checkpoint.
    """
    with db.write() as session:
        # Of the two jobs the one that trained is older: rows of jobs are locked by their ids.
        trained = session.get(Job, damaged.job_id, with_for_update=True, populate_existing=True)
        job = transitions.load_for_change(session, job_id)
        if job.fence != fence or job.state not in HELD:
            raise LeaseLost(f"job {job_id} may no longer take another model")
        chosen = _chosen(trained, damaged.chosen_as)
        checkpoint = checkpoints.lock(session, chosen) if chosen is not None else None
        if checkpoint is None or checkpoint.id == damaged.checkpoint_id:
            way_out = f"say {LATEST_CHECKPOINT}, or name another one"
            if trained is None:
                way_out = "it is deleted; name another model"
            elif trained.latest_checkpoint_id is None:
                way_out = "wait until it has saved one, or leave checkpoint out to use its result"
            raise NotFound(f"job {damaged.job_id} has no other checkpoint that is its {damaged.chosen_as}: {way_out}")
        model = damaged.changed(checkpoint_id=checkpoint.id)
        _use(job, model, checkpoint)
        message = f"{reason}; {model.chosen_as} is now {checkpoint.id} at step {checkpoint.step}, which is used"
        transitions.record_event(
            session,
            job.id,
            EventType.RESUME_FALLBACK,
            actor=actor,
            message=clean_text(masked_forms(message), MAX_MESSAGE),
            data={"checkpoint_id": damaged.checkpoint_id, "resumed_from": checkpoint.id},
        )
    return model


def with_model(document: JobDocument, model: ModelReference) -> JobDocument:
    """The document of an inference job with another model."""
    return document.changed(inference=(document.inference or Inference()).changed(model=model))


def damage_of(session: Session, checkpoint: Checkpoint) -> str | None:
    """Why a checkpoint was retired as damaged, as its job's history says; None for one that is there or was pruned."""
    events = select(JobEvent).where(JobEvent.job_id == checkpoint.job_id, JobEvent.type == EventType.RESUME_FALLBACK)
    if checkpoint.deleted_at is None:
        return None
    # A storage that could not be reached is such an event, too, of a checkpoint that may be pruned later.
    retired = (each for each in session.scalars(events) if each.data.get("retired") is True)
    return next((each.message for each in retired if each.data.get("checkpoint_id") == checkpoint.id), None)


def _chosen(trained: Job | None, rule: str) -> str | None:
    if trained is None:
        return None
    return trained.best_checkpoint_id if rule == BEST_CHECKPOINT else trained.latest_checkpoint_id


def _use(job: Job, model: ModelReference, checkpoint: Checkpoint) -> None:
    job.spec = with_model(job.document, model).to_json()
    job.resume_checkpoint_id = checkpoint.id  # which keeps it from retention
    if job.evaluated_step is not None:
        job.evaluated_step = checkpoint.step
