"""Chooses the checkpoint to resume from: the newest that verifies, fetched to this machine if necessary."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.services.attempts.checkpoints import ResumeCandidate
from app.storage.failures import StorageRefused
from app.storage.storage import Storage
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.fetching.uris import shown
from workers.prepare.inputs.input_library import LocalData
from workers.prepare.inputs.recorded_digests import digests_in


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A checkpoint that could not be used, and why; ``corrupt`` when the failure is permanent.

    Without ``checkpoint_id`` it is a shard, and ``step`` its number.
    """

    checkpoint_id: str
    step: int
    reason: str
    corrupt: bool

    @property
    def message(self) -> str:
        if not self.checkpoint_id:
            return f"shard {self.step} can't be used and is done again: {self.reason}"
        return f"checkpoint at step {self.step} can't be used: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class StartPoint:
    """The checkpoint to resume from; ``path`` None starts from the beginning, or after these finished ``shards``."""

    path: Path | None
    step: int
    checkpoint_id: str | None
    rejected: tuple[Rejected, ...]
    shards: tuple[int, ...] = ()  # by number; their files are in the output directory


def choose_start(storage: Storage, newest_first: Sequence[ResumeCandidate], scratch: Path) -> StartPoint:
    """The first candidate that verifies. Raises AttemptFailed while the storage is unavailable, because the newest
    may be good.
    """
    rejected: list[Rejected] = []
    missing: set[str] = set()
    for candidate in newest_first:
        try:
            path = fetched(storage, storage.key_of(candidate.uri), scratch / candidate.checkpoint_id)
            verify(path, candidate.sha256)
        except (_manifest.CorruptCheckpoint, NotFound, InvalidRequest, StorageRefused) as error:
            corrupt = isinstance(error, _manifest.CorruptCheckpoint)
            if isinstance(error, NotFound):
                missing.add(candidate.checkpoint_id)
            rejected.append(
                Rejected(checkpoint_id=candidate.checkpoint_id, step=candidate.step, reason=str(error), corrupt=corrupt)
            )
            continue
        except (TransientStorageError, OSError) as error:
            raise AttemptFailed("STORAGE_ERROR", f"checkpoint {candidate.checkpoint_id}: {error}") from error
        # Missing checkpoints count as permanently lost only once a checkpoint proves that the storage is mounted.
        known = tuple(replace(one, corrupt=one.corrupt or one.checkpoint_id in missing) for one in rejected)
        return StartPoint(path=path, step=candidate.step, checkpoint_id=candidate.checkpoint_id, rejected=known)
    return StartPoint(path=None, step=0, checkpoint_id=None, rejected=tuple(rejected))


def refuse_changed_data(start: StartPoint, data: Sequence[LocalData]) -> None:
    """Refuse to resume when the data has changed, because a checkpoint records a position in it.

    Raises AttemptFailed.
    """
    if start.path is None:
        return
    before = digests_in(_manifest.read(start.path).data_position)
    for known, source in zip(before or (), data, strict=False):
        if known and source.sha256 and known != source.sha256:
            raise AttemptFailed(
                "DATA_INVALID",
                f"data source {shown(source.location)} has changed since the checkpoint at step {start.step} was "
                "saved; restore the old file, or start from scratch without the checkpoint",
            )


def refuse_changed_reward(start: StartPoint, sha256: str) -> None:
    """Refuse to resume when the reward file has changed. Raises AttemptFailed."""
    if start.path is None:
        return
    before = _manifest.read(start.path).data_position.get("reward_sha256")
    if before and sha256 and before != sha256:
        raise AttemptFailed(
            "INVALID_CONFIG",
            f"the file of hyperparameter reward has changed since the checkpoint at step {start.step} was saved; "
            "restore the old file, or start from scratch without the checkpoint",
        )


def fetched(storage: Storage, key: str, target: Path) -> Path:
    """The stored directory on this machine: in its place, else copied to ``target``. Raises NotFound,
    TransientStorageError and StorageRefused.
    """
    in_place = storage.local_path(key)
    if in_place is not None:
        if not in_place.is_dir():
            raise NotFound(f"the storage has no {key}")
        return in_place.resolve()
    storage.fetch_tree(key, target)
    return target


def verify(path: Path, sha256: str) -> None:
    """Check all files against the manifest whose digest was recorded. Raises CorruptCheckpoint."""
    manifest = _manifest.verify(path)
    if _manifest.digest(manifest) != sha256:
        raise _manifest.CorruptCheckpoint(_manifest.NAME, "is not the manifest that was recorded")
