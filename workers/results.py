"""The finished model: what of the output directory is kept, its hash, and the report about it."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.errors import TrainyardError, TransientStorageError
from app.services.attempts import NewArtifact
from app.storage.keys import artifacts_key
from app.storage.storage import Storage
from app.storage.trees import tree_files
from trainyard import _outputs
from workers.failures import AttemptFailed
from workers.messages import Result

STORE_TRIES = 3
RETRY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """What was moved to the storage."""

    artifacts: tuple[NewArtifact, ...] = ()
    weight_files: tuple[str, ...] = ()
    model_hash: str = ""
    model_uri: str = ""

    def report(self, final_metrics: dict[str, Any]) -> dict[str, Any]:
        """The part of the completion report that only this end of the platform knows."""
        return {
            "model_hash": self.model_hash,
            "model_uri": self.model_uri,
            "weight_files": list(self.weight_files),
            "final_metrics": final_metrics,
        }


def store_model(storage: Storage, job_id: str, output: Path, result: Result | None) -> StoredModel:
    """Hash the output, which no rank writes any more, and move it to the storage. Raises AttemptFailed."""
    try:
        files = {file.path: file.source for file in tree_files(output)}
        weights = _weight_files(output, files, result)
        model_hash = hash_weights([files[name] for name in weights]) if weights else ""
        artifacts = tuple(_describe(name, source) for name, source in files.items())
    except (TrainyardError, OSError) as error:
        raise AttemptFailed("EXPORT_FAILED", f"the output can't be kept: {error}") from error
    if not artifacts:
        return StoredModel()
    key = artifacts_key(job_id)
    _put(storage, output, key)
    return StoredModel(artifacts=artifacts, weight_files=weights, model_hash=model_hash, model_uri=storage.uri(key))


def hash_weights(files: Sequence[Path]) -> str:
    """SHA-256 over the bytes of the files in that order: anyone can compute it again from the artefacts."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _weight_files(output: Path, files: Mapping[str, Path], result: Result | None) -> tuple[str, ...]:
    if result is None:
        return tuple(name for name in _outputs.weight_files(output) if name in files)
    for name in result.weight_files:
        if name not in files:
            raise AttemptFailed("EXPORT_FAILED", f"weight file {name} is named in the result but is not in the output")
    return result.weight_files


def _describe(name: str, source: Path) -> NewArtifact:
    with source.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return NewArtifact(path=name, size_bytes=source.stat().st_size, sha256=sha256)


def _put(storage: Storage, directory: Path, key: str) -> None:
    for left in reversed(range(STORE_TRIES)):
        try:
            storage.put_tree(directory, key, move=True)
            return
        except TransientStorageError as error:
            if not left:
                raise AttemptFailed("STORAGE_ERROR", f"the finished model could not be stored: {error}") from error
            time.sleep(RETRY_SECONDS)
        except TrainyardError as error:
            raise AttemptFailed("EXPORT_FAILED", f"the finished model could not be stored: {error}") from error
