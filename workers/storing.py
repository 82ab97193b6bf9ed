"""Moving a directory to the storage, tried again when the storage stumbles: checkpoints and finished models alike."""

import time
from collections.abc import Callable
from pathlib import Path

from app.domain.errors import TransientStorageError
from app.storage.storage import Storage

STORE_TRIES = 3
RETRY_SECONDS = 1.0


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def move_to_storage(
    storage: Storage, directory: Path, key: str, *, move: bool = True, rest: Callable[[float], bool] = _sleep
) -> None:
    """As ``Storage.put_tree``, several times; ``rest`` waits between two tries and says whether another makes sense."""
    for left in reversed(range(STORE_TRIES)):
        try:
            storage.put_tree(directory, key, move=move)
            return
        except TransientStorageError:
            if not left or not rest(RETRY_SECONDS):
                raise
