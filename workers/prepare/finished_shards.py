"""Copies the shards that earlier attempts have stored into the output directory, verified by their digests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.services.attempts.shards import StoredShard
from app.storage.beneath import copied, directory_opened, file_opened
from app.storage.failures import StorageRefused
from app.storage.storage import Storage
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.fetching.uris import shown
from workers.prepare.inputs.input_library import LocalData
from workers.prepare.inputs.recorded_digests import SOURCES, WEIGHTS, digests_in
from workers.prepare.inputs.resume_point import Rejected, StartPoint, fetched


@dataclass(frozen=True, kw_only=True)
class ShardInputs:
    """What shards are made of; ``weights`` is the digest of the model's files, "" where they can't change."""

    data: Sequence[LocalData] = ()
    weights: str = ""


def restore_shards(
    storage: Storage, shards: Sequence[StoredShard], output: Path, scratch: Path, inputs: ShardInputs
) -> StartPoint:
    """Copy the files of all shards that verify; the others are done again.

    Raises AttemptFailed while the storage is unavailable, and when data or model have changed since a shard was made.
    Raises OSError.
    """
    finished: list[StoredShard] = []
    lost: list[Rejected] = []
    missing: list[str] = []
    for shard in shards:
        place = scratch / f"shard-{shard.number}"
        try:
            directory = fetched(storage, storage.key_of(shard.uri), place)
            manifest = _read(directory, shard)
            _refuse_other_inputs(manifest, shard, inputs)
            _copy(directory, manifest, output)
            finished.append(shard)
        except (_manifest.CorruptCheckpoint, NotFound, InvalidRequest, StorageRefused) as error:
            missing += [str(error)] if isinstance(error, NotFound) else []
            lost.append(Rejected(checkpoint_id="", step=shard.number, reason=str(error), corrupt=False))
        except TransientStorageError as error:
            raise AttemptFailed("STORAGE_ERROR", f"shard {shard.number}: {error}") from error
        finally:
            _manifest.discard(place)
    if missing and len(missing) == len(shards):
        # Nothing proves that the storage is there: a volume may not be mounted.
        raise AttemptFailed("STORAGE_ERROR", f"no stored shard was found: {missing[0]}")
    return StartPoint(
        path=None,
        step=sum(shard.records for shard in finished),
        checkpoint_id=None,
        rejected=tuple(lost),
        shards=tuple(shard.number for shard in finished),
    )


def _read(directory: Path, shard: StoredShard) -> _manifest.Manifest:
    manifest = _manifest.read(directory)
    if _manifest.digest(manifest) != shard.sha256:
        raise _manifest.CorruptCheckpoint(_manifest.NAME, "is not the manifest that was recorded")
    return manifest


def _copy(directory: Path, manifest: _manifest.Manifest, output: Path) -> None:
    """Copy its files under their final names only when all of them verify. Raises CorruptCheckpoint and OSError."""
    copies: list[tuple[Path, Path]] = []
    try:
        with directory_opened(directory) as root:
            for entry in manifest.files:
                target = output / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                copy = target.with_name(f".{target.name}.copy")
                copies.append((copy, target))
                _copy_one(root, entry, copy)
        for copy, target in copies:
            copy.replace(target)
    finally:
        for copy, _ in copies:
            copy.unlink(missing_ok=True)


def _copy_one(root: int, entry: _manifest.FileEntry, copy: Path) -> None:
    try:
        with file_opened(root, entry.path) as source, copy.open("wb") as target:
            content = copied(source, entry.path, target.write)
    except FileNotFoundError as error:
        raise _manifest.CorruptCheckpoint(entry.path, "missing") from error
    if (content.size_bytes, content.sha256) != (entry.size, entry.sha256):
        raise _manifest.CorruptCheckpoint(entry.path, "content differs from its SHA-256")


def _refuse_other_inputs(manifest: _manifest.Manifest, shard: StoredShard, inputs: ShardInputs) -> None:
    """Raises AttemptFailed: half of the results would be of other records or of another model. Raises
    CorruptCheckpoint where the digests are none.
    """
    before, weights = digests_in(manifest.data_position), manifest.data_position.get(WEIGHTS, "")
    if before is None or not isinstance(weights, str):
        raise _manifest.CorruptCheckpoint(_manifest.NAME, f"{SOURCES} or {WEIGHTS} is no digest")
    if weights and inputs.weights and weights != inputs.weights:
        raise AttemptFailed(
            "MODEL_NOT_FOUND",
            f"the files of the model have changed since shard {shard.number} was made with it; restore the old ones, "
            "name a revision, or submit the job again",
        )
    for known, source in zip(before, inputs.data, strict=False):
        if known and source.sha256 and known != source.sha256:
            raise AttemptFailed(
                "DATA_INVALID",
                f"data source {shown(source.location)} has changed since shard {shard.number} was made of it; restore "
                "the old file, or submit the job again",
            )
