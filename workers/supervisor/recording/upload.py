"""Moves a directory to the storage, with retries: checkpoints and finished models alike."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import TransientStorageError
from app.storage.storage import Storage
from app.storage.trees import Known
from workers.supervisor.recording.disk_space import is_full

STORE_TRIES = 3
RETRY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """``rest`` waits between two tries and returns whether to retry; ``waits`` whether to wait for disk space."""

    rest: Callable[[float], bool]
    waits: Callable[[BaseException], bool]


def move_to_storage(
    storage: Storage, directory: Path, key: str, patience: Patience, *, known: Known, move: bool = True
) -> None:
    """``Storage.put_tree`` with retries; on a full disk for as long as ``patience`` allows."""
    left = STORE_TRIES
    while True:
        try:
            storage.put_tree(directory, key, move=move, known=known)
            return
        except TransientStorageError as error:
            waits = is_full(error) and patience.waits(error)
            left -= not waits
            if left == 0 or not patience.rest(RETRY_SECONDS):
                raise
