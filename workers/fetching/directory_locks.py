"""Directories owned by a living process through a file lock; they can be deleted when the process has ended."""

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

LOCK = ".lock"
POLL_SECONDS = 0.1


class DirectoryLock:
    """A new directory ``parent/<label>-<random>``, locked as long as this object is open. The lock file lies beside
    it.
    """

    def __init__(self, parent: Path, label: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            self.path = parent / f"{label}-{secrets.token_hex(6)}"
            lock = _try_lock(_lock_of(self.path))
            if lock is not None:  # otherwise a concurrent sweep was faster
                break
        self._lock = lock
        self.path.mkdir()

    def close(self) -> None:
        """Delete the directory; idempotent."""
        if self._lock >= 0:
            _delete(self.path)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sweep(parent: Path) -> int:
    """Delete the directories whose owners have ended; returns their number."""
    swept = 0
    for lock in parent.glob(f"*{LOCK}"):
        descriptor = _try_lock(lock)
        if descriptor is not None:
            _delete(lock.with_suffix(""))
            os.close(descriptor)
            swept += 1
    return swept


@contextlib.contextmanager
def locked(path: Path, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Mutual exclusion between processes; ``waiting`` is called repeatedly while blocked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while (descriptor := _try_lock(path)) is None:
        waiting()
        time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock_of(directory: Path) -> Path:
    return directory.with_name(directory.name + LOCK)


def _delete(directory: Path) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if os.path.lexists(directory):  # code of users may have made directories in another that are too many for Python
        subprocess.run(["rm", "-rf", "--", str(directory)], stderr=subprocess.DEVNULL, check=False)
    _lock_of(directory).unlink(missing_ok=True)


def _try_lock(path: Path) -> int | None:
    """The descriptor that holds the lock; None while another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder deletes the file: a lock on an unlinked file excludes no other process.
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
