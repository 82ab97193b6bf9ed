"""Fetches and verifies the weights that a job takes from another job: those of a checkpoint, or of a result."""

import hashlib
import logging
import shutil
from dataclasses import replace
from pathlib import Path

from app.database.engine import Database
from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.domain.spec.document import judging_job
from app.domain.spec.inference import EVALUATION, ModelReference
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.rules.model import continues_adapter, is_result
from app.services.attempts import model_weights
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.attempts.model_weights import StoredResult
from app.services.attempts.work_orders import WorkOrder
from app.storage.beneath import FileDigest, copied, directory_opened, file_opened
from app.storage.failures import StorageRefused
from app.storage.object_keys import artifacts_key
from app.storage.storage import Storage
from trainyard._hooks.outputs import WEIGHT_SUFFIXES
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import JobInputs, LocalModel
from workers.prepare.inputs.resume_point import fetched, verify
from workers.run_dir.layout import RunDirectory

log = logging.getLogger(__name__)


class DamagedCheckpoint(AttemptFailed):
    """The checkpoint that is the job's model has proved damaged; not ``retired`` where that could not be recorded."""

    def __init__(self, reason: str, *, retired: bool = True) -> None:
        super().__init__("MODEL_NOT_FOUND", f"{reason}: {model_weights.SUBMIT_ANOTHER}")
        self.reason, self.retired = reason, retired


def with_results(
    db: Database, storage: Storage, work: WorkOrder, sources: JobInputs, run: RunDirectory
) -> tuple[WorkOrder, JobInputs, Path | None]:
    """The work order, with another model where its own has proved damaged, the sources with the results that are the
    job's base and reward model, and `find_weights`. Raises AttemptFailed and LeaseLost.
    """
    base = work.document.training_config.base_model
    work, weights = _usable_weights(db, storage, work, run.path / "weights")
    if is_result(base):
        service = work.document.inference.model.service if work.document.inference is not None else None
        reference = ModelReference().changed(job_id=base.job_id, service=service)
        result = _found(db, storage, work, reference, run.path / "base")
        sources = with_result(sources, base, result)
    elif work.is_training:
        sources = with_result(sources, base, weights)
    if (judge := judging_job(work.document)) is not None:
        found = find_result(db, storage, work, ModelReference().changed(job_id=judge), run.path / "judge")
        sources = replace(sources, reward_model=LocalModel(path=found, visible=found))
    return work, sources, weights


def _usable_weights(db: Database, storage: Storage, work: WorkOrder, scratch: Path) -> tuple[WorkOrder, Path | None]:
    """`find_weights` of the first of the job's best or newest checkpoints that verifies. Raises LeaseLost."""
    while True:
        try:
            return work, find_weights(db, storage, work, scratch)
        except DamagedCheckpoint as damage:
            work = _with_another(db, work, damage)
            shutil.rmtree(scratch, ignore_errors=True)


def _with_another(db: Database, work: WorkOrder, damage: DamagedCheckpoint) -> WorkOrder:
    """The work order with what is now the best or newest checkpoint. Raises the damage where there is none, where the
    request has named the checkpoint, where a service answers with it, and where results of it are stored, which must
    not mix with those of another.
    """
    inference = work.document.inference
    if inference is None or not inference.model.chosen_as or inference.model.service or work.is_replica:
        raise damage
    if not damage.retired:  # it is still the best or newest one: another attempt can record that it is not
        raise AttemptFailed("STORAGE_ERROR", f"{damage.reason}, and could not be retired") from damage
    if work.shards:
        noun, count = "benchmark" if work.kind == EVALUATION else "shard", len(work.shards)
        made = f"1 {noun} is finished with it" if count == 1 else f"{count} {noun}s are finished with it"
        raise AttemptFailed(
            "MODEL_NOT_FOUND",
            f"{damage.reason}; {made}, which another model must not continue: {model_weights.SUBMIT_ANOTHER}",
        )
    try:
        model = model_weights.fall_back(
            db, job_id=work.job_id, fence=work.fence, damaged=inference.model, reason=damage.reason, actor=work.actor
        )
    except NotFound as error:
        raise AttemptFailed("MODEL_NOT_FOUND", f"{damage.reason}; {error.message}") from error
    return replace(work, document=model_weights.with_model(work.document, model))


def with_result(sources: JobInputs, base: BaseModel, result: Path | None) -> JobInputs:
    """The sources with what a job has made in place of the model, or with the tokenizer beside its adapter."""
    if result is None:
        return sources
    made = LocalModel(path=result, visible=result)
    if is_result(base):
        return replace(sources, model=made)
    return replace(sources, tokenizer=sources.tokenizer or made)


def with_result_here(storage: Storage, document: JobDocument, sources: JobInputs) -> JobInputs:
    """The same for a preview, which verifies nothing: where the storage is a directory of this machine."""
    base = document.training_config.base_model
    place = storage.local_path(artifacts_key(base.job_id)) if base.job_id is not None else None
    return with_result(sources, base, place.resolve() if place is not None and place.is_dir() else None)


def find_weights(db: Database, storage: Storage, work: WorkOrder, scratch: Path) -> Path | None:
    """The directory with the verified weights, of a training those of the adapter that it continues; None for those
    of the base model. Raises AttemptFailed.
    """
    base, inference = work.document.training_config.base_model, work.document.inference
    if inference is not None:
        return _found(db, storage, work, inference.model, scratch)
    if continues_adapter(base):
        return _found(db, storage, work, ModelReference().changed(job_id=base.job_id), scratch)
    return None


def find_result(db: Database, storage: Storage, work: WorkOrder, model: ModelReference, scratch: Path) -> Path:
    """The directory with the verified files of a job's result or checkpoint. Raises AttemptFailed."""
    found = _found(db, storage, work, model, scratch)
    if found is None:
        raise AttemptFailed("MODEL_NOT_FOUND", "no job is named")
    return found


def _found(db: Database, storage: Storage, work: WorkOrder, model: ModelReference, scratch: Path) -> Path | None:
    what = f"the result of {model.job_id}" if model.checkpoint_id is None else f"checkpoint {model.checkpoint_id}"
    try:
        stored = model_weights.find(db, work.project, model)
    except model_weights.RetiredCheckpoint as error:
        raise DamagedCheckpoint(_text(what, error)) from error
    except NotFound as error:
        raise _unusable(what, error) from error
    if stored is None:
        return None
    try:
        if isinstance(stored, ResumeCandidate):
            directory = _verified(storage, stored, scratch)
        elif model.service is not None:
            directory = _without_weights(storage, stored, scratch)
        else:
            directory = fetched(storage, artifacts_key(stored.job_id), scratch)
            _compare(directory, stored)
    except (TransientStorageError, NotFound, OSError) as error:
        # They are recorded: where the storage has none of them, its volume may not be mounted.
        raise AttemptFailed("STORAGE_ERROR", f"{what}: {error}") from error
    except _manifest.CorruptCheckpoint as error:
        if not isinstance(stored, ResumeCandidate):
            raise _unusable(what, error) from error
        retired = _retire(db, work, stored, str(error))
        state = "damaged and retired" if retired else "damaged"
        raise DamagedCheckpoint(f"{_text(what, error)}; it is {state}", retired=retired) from error
    except (InvalidRequest, StorageRefused) as error:
        raise _unusable(what, error) from error
    return directory


def _verified(storage: Storage, checkpoint: ResumeCandidate, scratch: Path) -> Path:
    """A checkpoint's files on this machine. Raises CorruptCheckpoint, OSError, and as `fetched`.

    A copy that differs is fetched once more: this machine may have damaged it, and not the storage.
    """
    key = storage.key_of(checkpoint.uri)
    directory = fetched(storage, key, scratch)
    try:
        verify(directory, checkpoint.sha256)
    except _manifest.CorruptCheckpoint as error:
        if storage.local_path(key) is not None:
            raise
        log.warning("the copy of checkpoint %s is damaged and is fetched again: %s", checkpoint.checkpoint_id, error)
        shutil.rmtree(directory)
        verify(fetched(storage, key, directory), checkpoint.sha256)
    return directory


def _retire(db: Database, work: WorkOrder, stored: ResumeCandidate, reason: str) -> bool:
    """Whether it is retired now, by this job or by another one meanwhile."""
    try:
        model_weights.retire_damaged(db, stored, reason, actor=work.actor, found_by=work.job_id)
    except Exception:
        log.warning(
            "the damaged checkpoint %s was not retired; who reads it next will", stored.checkpoint_id, exc_info=True
        )
        return False
    return True


def _without_weights(storage: Storage, result: StoredResult, target: Path) -> Path:
    """A copy of what describes the model, with its tokenizer: a job that asks a service loads no weights.

    Raises as `fetched` and `_compare`.
    """
    for path, recorded in result.files.items():
        if Path(path).suffix in WEIGHT_SUFFIXES:
            continue
        data = storage.read(f"{artifacts_key(result.job_id)}/{path}")
        if FileDigest(len(data), hashlib.sha256(data).hexdigest()) != recorded:
            raise _manifest.CorruptCheckpoint(path, "content differs from its SHA-256")
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    return target


def _unusable(what: str, error: Exception) -> AttemptFailed:
    return AttemptFailed("MODEL_NOT_FOUND", _text(what, error))


def _text(what: str, error: Exception) -> str:
    return f"{what} can't be used as the model: {error}"


def _compare(directory: Path, result: StoredResult) -> None:
    """Raises CorruptCheckpoint for a file that differs from what was recorded, OSError when one can't be read."""
    with directory_opened(directory) as root:
        for path, recorded in result.files.items():
            try:
                with file_opened(root, path) as file:
                    found = copied(file, path)
            except FileNotFoundError as error:
                raise _manifest.CorruptCheckpoint(path, "missing") from error
            if found != recorded:
                raise _manifest.CorruptCheckpoint(path, "content differs from its SHA-256")
