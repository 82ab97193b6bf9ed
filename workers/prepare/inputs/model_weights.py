"""Fetches and verifies the weights that a job takes from another job: those of a checkpoint, or of a result."""

import hashlib
import logging
import shutil
from dataclasses import replace
from pathlib import Path

from app.database.engine import Database
from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.domain.spec.document import judging_job
from app.domain.spec.inference import ModelReference
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.rules.model import continues_adapter, is_result
from app.services.attempts import model_weights
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.attempts.model_weights import StoredResult
from app.services.attempts.work_orders import Work
from app.storage.beneath import Content, copied, directory_opened, file_opened
from app.storage.failures import StorageRefused
from app.storage.keys import artifacts_key
from app.storage.storage import Storage
from trainyard._hooks.outputs import WEIGHT_SUFFIXES
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import LocalModel, Sources
from workers.prepare.inputs.resume_point import fetched, verify

log = logging.getLogger(__name__)


def with_results(
    db: Database, storage: Storage, work: Work, sources: Sources, scratch: Path
) -> tuple[Sources, Path | None]:
    """The sources with the results that are the job's base and reward model, and `find_weights`.

    Raises AttemptFailed.
    """
    base = work.document.training_config.base_model
    weights = find_weights(db, storage, work, scratch / "weights")
    if is_result(base):
        service = work.document.inference.model.service if work.document.inference is not None else None
        reference = ModelReference().changed(job_id=base.job_id, service=service)
        result = _found(db, storage, work, reference, scratch / "base")
        sources = with_result(sources, base, result)
    elif work.is_training:
        sources = with_result(sources, base, weights)
    if (judge := judging_job(work.document)) is not None:
        found = find_result(db, storage, work, ModelReference().changed(job_id=judge), scratch / "judge")
        sources = replace(sources, reward_model=LocalModel(path=found, visible=found))
    return sources, weights


def with_result(sources: Sources, base: BaseModel, result: Path | None) -> Sources:
    """The sources with what a job has made in place of the model, or with the tokenizer beside its adapter."""
    if result is None:
        return sources
    made = LocalModel(path=result, visible=result)
    if is_result(base):
        return replace(sources, model=made)
    return replace(sources, tokenizer=sources.tokenizer or made)


def with_result_here(storage: Storage, document: JobDocument, sources: Sources) -> Sources:
    """The same for a preview, which verifies nothing: where the storage is a directory of this machine."""
    base = document.training_config.base_model
    place = storage.local_path(artifacts_key(base.job_id)) if base.job_id is not None else None
    return with_result(sources, base, place.resolve() if place is not None and place.is_dir() else None)


def find_weights(db: Database, storage: Storage, work: Work, scratch: Path) -> Path | None:
    """The directory with the verified weights, of a training those of the adapter that it continues; None for those
    of the base model. Raises AttemptFailed.
    """
    base, inference = work.document.training_config.base_model, work.document.inference
    if inference is not None:
        return _found(db, storage, work, inference.model, scratch)
    if continues_adapter(base):
        return _found(db, storage, work, ModelReference().changed(job_id=base.job_id), scratch)
    return None


def find_result(db: Database, storage: Storage, work: Work, model: ModelReference, scratch: Path) -> Path:
    """The directory with the verified files of a job's result or checkpoint. Raises AttemptFailed."""
    found = _found(db, storage, work, model, scratch)
    if found is None:
        raise AttemptFailed("MODEL_NOT_FOUND", "no job is named")
    return found


def _found(db: Database, storage: Storage, work: Work, model: ModelReference, scratch: Path) -> Path | None:
    what = f"the result of {model.job_id}" if model.checkpoint_id is None else f"checkpoint {model.checkpoint_id}"
    try:
        stored = model_weights.find(db, work.project, model)
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
        state = "damaged and retired" if _retire(db, work, stored, str(error)) else "damaged"
        way_out = f"it is {state}: {model_weights.SUBMIT_ANOTHER}"
        raise AttemptFailed("MODEL_NOT_FOUND", f"{what} can't be used as the model: {error}; {way_out}") from error
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


def _retire(db: Database, work: Work, stored: ResumeCandidate, reason: str) -> bool:
    try:
        return model_weights.retire_damaged(db, stored, reason, actor=work.actor, found_by=work.job_id)
    except Exception:
        log.warning(
            "the damaged checkpoint %s was not retired; who reads it next will", stored.checkpoint_id, exc_info=True
        )
        return False


def _without_weights(storage: Storage, result: StoredResult, target: Path) -> Path:
    """A copy of what describes the model, with its tokenizer: a job that asks a service loads no weights.

    Raises as `fetched` and `_compare`.
    """
    for path, recorded in result.files.items():
        if Path(path).suffix in WEIGHT_SUFFIXES:
            continue
        data = storage.read(f"{artifacts_key(result.job_id)}/{path}")
        if Content(len(data), hashlib.sha256(data).hexdigest()) != recorded:
            raise _manifest.CorruptCheckpoint(path, "content differs from its SHA-256")
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    return target


def _unusable(what: str, error: Exception) -> AttemptFailed:
    return AttemptFailed("MODEL_NOT_FOUND", f"{what} can't be used as the model: {error}")


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
