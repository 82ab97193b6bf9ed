"""The finished model: which files of the output directory are stored, their hash, and the report."""

import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.domain.errors import TrainyardError, TransientStorageError
from app.domain.lifecycle.outcomes import NewArtifact
from app.domain.spec.model import OutputConfig
from app.storage.beneath import FileDigest, copied, directory_opened, file_opened
from app.storage.object_keys import artifacts_key, is_run_file, run_file_key
from app.storage.storage import Storage
from app.storage.trees import TreeFile, walked
from config.storage import StorageSettings
from trainyard._hooks import outputs as _outputs
from trainyard.protocol.messages import Result
from workers.attempt_failed import AttemptFailed
from workers.supervisor.recording.upload import Patience, move_to_storage

MAX_PATH = 512  # characters of an artifact's path, as the table has them


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """The artifacts that were moved to the storage."""

    artifacts: tuple[NewArtifact, ...] = ()
    weight_files: tuple[str, ...] = ()
    model_hash: str = ""
    model_uri: str = ""
    directory: Path = Path()  # where its files lie on this machine, if kept
    benchmarks: Mapping[str, Any] = field(default_factory=dict)  # of an evaluation: what it has measured

    def report(self, final_metrics: dict[str, Any]) -> dict[str, Any]:
        """The part of the completion report that the supervisor contributes."""
        return {
            "model_hash": self.model_hash,
            "model_uri": self.model_uri,
            "weight_files": list(self.weight_files),
            "final_metrics": final_metrics,
            **({"benchmarks": dict(self.benchmarks)} if self.benchmarks else {}),
        }


@dataclass(frozen=True, kw_only=True)
class OutputLimits:
    """Limits of an output; ``size_rule`` names the field or setting that sets the size."""

    files: int
    size_mb: int
    size_rule: str


def output_limits(output: OutputConfig, settings: StorageSettings) -> OutputLimits:
    """The job's limit where it is lower than the operator's."""
    asked, most = output.max_output_size_mb, settings.max_output_size_mb
    if asked is not None and asked <= most:
        return OutputLimits(
            files=settings.max_output_files, size_mb=asked, size_rule="output_config.max_output_size_mb"
        )
    return OutputLimits(
        files=settings.max_output_files, size_mb=most, size_rule="the operator's TRAINYARD_STORAGE_MAX_OUTPUT_SIZE_MB"
    )


@dataclass(frozen=True)
class Output:
    """The output directory after the ranks have ended; one that is no model has no weights, whatever its names.

    ``folder``: where it lies among the artifacts; empty for the result itself.
    """

    directory: Path
    files: Mapping[str, str]  # relative path → the file, with links inside resolved
    is_model: bool = True
    size_bytes: int = 0
    folder: str = ""


def find_output(directory: Path, limits: OutputLimits, *, custom: bool, folder: str = "") -> Output:
    """The files to store. Raises AttemptFailed unless it is a directory of ours with files within the limits.

    A rank could have replaced it by a link, behind which nothing is this job's. A user's script may remove files.
    """
    try:
        mode = directory.lstat().st_mode
    except FileNotFoundError:
        if custom:
            return Output(directory, {}, folder=folder)
        raise AttemptFailed("EXPORT_FAILED", "the output directory is gone") from None
    if not stat.S_ISDIR(mode):
        raise AttemptFailed("EXPORT_FAILED", "the output directory was replaced by something else, such as a link")
    try:
        found = list(_bounded(walked(directory), limits))
    except (TrainyardError, OSError) as error:
        raise AttemptFailed("EXPORT_FAILED", f"the output can't be kept: {error}") from error
    for file in found:
        _check_name(file.path, folder)
    files = {file.path: file.source for file in sorted(found, key=lambda file: file.path)}
    return Output(directory, files, size_bytes=sum(file.size_bytes for file in found), folder=folder)


def _check_name(path: str, folder: str) -> None:
    most = MAX_PATH - len(folder) - 1 if folder else MAX_PATH
    if len(path) > most:
        raise AttemptFailed("EXPORT_FAILED", f"the path of an output file is longer than {most}: {path}")
    if not folder and is_run_file(path):  # in a node's folder no name clashes
        raise AttemptFailed("EXPORT_FAILED", f"an output file bears a name that the platform uses: {path}")


def _bounded(files: Iterable[TreeFile], limits: OutputLimits) -> Iterator[TreeFile]:
    """The files. Raises AttemptFailed when they are too many or too large, before any is read."""
    count = size = 0
    for file in files:
        count, size = count + 1, size + file.size_bytes
        if count > limits.files:
            raise AttemptFailed(
                "EXPORT_FAILED",
                f"the output has more than {limits.files} files, the most that TRAINYARD_STORAGE_MAX_OUTPUT_FILES "
                "allows; pack them into fewer, such as an archive, or ask the operator to raise it",
            )
        if size > limits.size_mb << 20:
            raise AttemptFailed(
                "EXPORT_FAILED",
                f"the output is larger than the {limits.size_mb} MB that {limits.size_rule} allows (sparse files "
                "count with their full size); keep less of it, or raise the limit",
            )
        yield file


def store_model(
    storage: Storage, job_id: str, output: Output, result: Result | None, *, patience: Patience, keep: bool = False
) -> StoredModel:
    """Hash the output and move it to the storage. Raises AttemptFailed.

    ``keep``: a copy stays on this machine, in ``StoredModel.directory``.
    """
    weights = _weight_files(output, result)
    if not output.files:
        return StoredModel()
    try:
        artifacts, model_hash = _describe(output, weights)
    except (TrainyardError, OSError) as error:
        raise AttemptFailed("EXPORT_FAILED", f"the output can't be kept: {error}") from error
    key = run_file_key(job_id, output.folder) if output.folder else artifacts_key(job_id)
    in_place = storage.local_path(key)
    known = {each.path: FileDigest(each.size_bytes, each.sha256) for each in artifacts}
    stored = tuple(replace(each, path=f"{output.folder}/{each.path}".lstrip("/")) for each in artifacts)
    try:
        move_to_storage(storage, output.directory, key, patience, known=known, move=in_place is not None or not keep)
    except TransientStorageError as error:
        raise AttemptFailed("STORAGE_ERROR", f"the finished model could not be stored: {error}") from error
    except TrainyardError as error:
        raise AttemptFailed("EXPORT_FAILED", f"the finished model could not be stored: {error}") from error
    return StoredModel(
        artifacts=stored,
        weight_files=weights,
        model_hash=model_hash,
        model_uri=storage.uri(key),
        directory=in_place or output.directory,
    )


def _weight_files(output: Output, result: Result | None) -> tuple[str, ...]:
    """The weight files that the result names, else those found by their names."""
    if not output.is_model:
        return ()
    if result is None or not result.weight_files:
        names = _outputs.weight_files(output.directory) if output.files else []
        return tuple(name for name in names if name in output.files)
    for name in result.weight_files:
        if name not in output.files:
            raise AttemptFailed("EXPORT_FAILED", f"weight file {name} is named in the result but is not in the output")
    return result.weight_files


def _describe(output: Output, weights: tuple[str, ...]) -> tuple[tuple[NewArtifact, ...], str]:
    """Every file with its hash, and SHA-256 over the bytes of the weights in their order, each byte read once.

    The latter can be recomputed from the artifacts; it is empty without weights.
    """
    model, files = hashlib.sha256(), output.files
    with directory_opened(output.directory) as root:
        described = {name: _hashed(root, name, files[name], model.update) for name in weights}
        described |= {name: _hashed(root, name, files[name]) for name in files if name not in described}
    return tuple(described[name] for name in files), model.hexdigest() if weights else ""


def _hashed(root: int, name: str, source: str, more: Callable[[bytes], object] = len) -> NewArtifact:
    with file_opened(root, source) as file:
        content = copied(file, name, more)
    return NewArtifact(path=name, size_bytes=content.size_bytes, sha256=content.sha256)
