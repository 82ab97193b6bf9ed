"""Fetches and verifies the weights that a job takes from another job: those of a checkpoint, or of a result."""

from pathlib import Path

from app.database.engine import Database
from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.services.attempts import model_weights
from app.services.attempts.checkpoints import ResumeCandidate
from app.services.attempts.model_weights import StoredResult
from app.services.attempts.work_orders import Work
from app.storage.beneath import copied, directory_opened, file_opened
from app.storage.failures import StorageRefused
from app.storage.keys import artifacts_key
from app.storage.storage import Storage
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.prepare.resume_point import fetched, verify


def find_weights(db: Database, storage: Storage, work: Work, scratch: Path) -> Path | None:
    """The directory with the verified weights; None for those of the base model. Raises AttemptFailed."""
    if work.document.inference is None:
        return None
    model = work.document.inference.model
    what = f"the result of {model.job_id}" if model.checkpoint_id is None else f"checkpoint {model.checkpoint_id}"
    try:
        stored = model_weights.find(db, work.project, model)
    except NotFound as error:
        raise _unusable(what, error) from error
    if stored is None:
        return None
    try:
        if isinstance(stored, ResumeCandidate):
            directory = fetched(storage, storage.key_of(stored.uri), scratch)
            verify(directory, stored.sha256)
        else:
            directory = fetched(storage, artifacts_key(stored.job_id), scratch)
            _compare(directory, stored)
    except (TransientStorageError, NotFound, OSError) as error:
        # They are recorded: where the storage has none of them, its volume may not be mounted.
        raise AttemptFailed("STORAGE_ERROR", f"{what}: {error}") from error
    except (_manifest.CorruptCheckpoint, InvalidRequest, StorageRefused) as error:
        raise _unusable(what, error) from error
    return directory


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
