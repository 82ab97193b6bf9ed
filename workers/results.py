"""The finished model: what of the output directory is kept, its hash, and the report about it."""

import hashlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.errors import TrainyardError, TransientStorageError
from app.services.attempts import NewArtifact
from app.storage.keys import artifacts_key, is_run_file
from app.storage.storage import Storage
from app.storage.trees import tree_files
from trainyard import _outputs
from workers.failures import AttemptFailed
from workers.messages import Result
from workers.storing import Patience, move_to_storage

BLOCK_BYTES = 1 << 20
MAX_PATH = 512  # characters of an artifact's path, as the table has them


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """What was moved to the storage."""

    artifacts: tuple[NewArtifact, ...] = ()
    weight_files: tuple[str, ...] = ()
    model_hash: str = ""
    model_uri: str = ""
    directory: Path = Path()  # where its files lie on this machine, if they do

    def report(self, final_metrics: dict[str, Any]) -> dict[str, Any]:
        """The part of the completion report that only this end of the platform knows."""
        return {
            "model_hash": self.model_hash,
            "model_uri": self.model_uri,
            "weight_files": list(self.weight_files),
            "final_metrics": final_metrics,
        }


@dataclass(frozen=True)
class Output:
    """The output directory as the ranks, which are dead, left it: path in it → file."""

    directory: Path
    files: Mapping[str, Path]


def find_output(directory: Path, *, custom: bool) -> Output:
    """What there is to keep. Raises AttemptFailed unless it is a directory of our own with files that may be kept.

    A rank could have put a link in its place: nothing behind that is this job's. A script of the user's may remove
    what it does not need.
    """
    try:
        mode = directory.lstat().st_mode
    except FileNotFoundError:
        if custom:
            return Output(directory, {})
        raise AttemptFailed("EXPORT_FAILED", "the output directory is gone") from None
    if not stat.S_ISDIR(mode):
        raise AttemptFailed("EXPORT_FAILED", "the output directory was replaced by something else, such as a link")
    try:
        files = {file.path: file.source for file in tree_files(directory)}
    except (TrainyardError, OSError) as error:
        raise AttemptFailed("EXPORT_FAILED", f"the output can't be kept: {error}") from error
    for path in files:
        if len(path) > MAX_PATH:
            raise AttemptFailed("EXPORT_FAILED", f"the path of an output file is longer than {MAX_PATH}: {path}")
        if is_run_file(path):
            raise AttemptFailed("EXPORT_FAILED", f"an output file bears a name that the platform uses: {path}")
    return Output(directory, files)


def store_model(
    storage: Storage, job_id: str, output: Output, result: Result | None, *, patience: Patience, keep: bool = False
) -> StoredModel:
    """Hash the output and move it to the storage. Raises AttemptFailed.

    ``keep``: it is needed on this machine afterwards, where ``StoredModel.directory`` says.
    """
    weights = _weight_files(output, result)
    if not output.files:
        return StoredModel()
    try:
        artifacts, model_hash = _describe(output.files, weights)
    except OSError as error:
        raise AttemptFailed("EXPORT_FAILED", f"the output can't be kept: {error}") from error
    key = artifacts_key(job_id)
    in_place = storage.local_path(key)
    try:
        move_to_storage(storage, output.directory, key, patience, move=in_place is not None or not keep)
    except TransientStorageError as error:
        raise AttemptFailed("STORAGE_ERROR", f"the finished model could not be stored: {error}") from error
    except TrainyardError as error:
        raise AttemptFailed("EXPORT_FAILED", f"the finished model could not be stored: {error}") from error
    return StoredModel(
        artifacts=artifacts,
        weight_files=weights,
        model_hash=model_hash,
        model_uri=storage.uri(key),
        directory=in_place or output.directory,
    )


def _weight_files(output: Output, result: Result | None) -> tuple[str, ...]:
    """Those that the result names, else those that look like weights."""
    if result is None or result.weight_files is None:
        names = _outputs.weight_files(output.directory) if output.files else []
        return tuple(name for name in names if name in output.files)
    for name in result.weight_files:
        if name not in output.files:
            raise AttemptFailed("EXPORT_FAILED", f"weight file {name} is named in the result but is not in the output")
    return result.weight_files


def _describe(files: Mapping[str, Path], weights: tuple[str, ...]) -> tuple[tuple[NewArtifact, ...], str]:
    """Every file with its hash, and SHA-256 over the bytes of the weights in their order, each byte read once.

    Anyone can compute the latter again from the artefacts; without weights it is empty.
    """
    model = hashlib.sha256()
    described = {name: _hashed(name, files[name], model) for name in weights}
    described |= {name: _hashed(name, files[name]) for name in files if name not in described}
    return tuple(described[name] for name in files), model.hexdigest() if weights else ""


def _hashed(name: str, source: Path, *more: "hashlib._Hash") -> NewArtifact:
    own, size = hashlib.sha256(), 0
    with source.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            for digest in (own, *more):
                digest.update(block)
    return NewArtifact(path=name, size_bytes=size, sha256=own.hexdigest())
