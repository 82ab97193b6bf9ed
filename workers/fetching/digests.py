"""SHA-256 of local files, cached as long as the files do not change."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path

from workers.fetching.cache import write_synced

# A file that changes again within the clock's tick keeps its times, so digests of recently written files are not
# cached.
SETTLED_SECONDS = 2.0
_BLOCK_BYTES = 1 << 20

Opened = Callable[[Path], AbstractContextManager[BufferedReader]]


def opened_plainly(path: Path) -> AbstractContextManager[BufferedReader]:
    return path.open("rb")


class Digests:
    """Caches digests in a directory; ``opened`` opens a file for reading."""

    def __init__(self, directory: Path, opened: Opened = opened_plainly) -> None:
        self._directory = directory
        self._opened = opened

    def of(self, path: Path) -> str:
        """Raises OSError, and what opening the file raises."""
        note = self._directory / hashlib.sha256(os.fsencode(path)).hexdigest()
        with self._opened(path) as stream:
            before = _state(stream)
            known = _read(note)
            if known.get("state") == before:
                return str(known["sha256"])
            sha256 = _digest(stream, before[1])
            is_unchanged = _state(stream) == before
        newest = max(before[2], before[3]) / 1e9
        if is_unchanged and time.time() - newest > SETTLED_SECONDS:
            with contextlib.suppress(OSError):  # it only costs the next attempt some time
                self._directory.mkdir(parents=True, exist_ok=True)
                write_synced(note, json.dumps({"state": before, "sha256": sha256}))
        return sha256


def joined(digests: list[str]) -> str:
    """One digest over those of several files, in order; empty when there are none, or one is unknown."""
    known = bool(digests) and all(digests)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest() if known else ""


def _digest(stream: BufferedReader, size: int) -> str:
    """Of at most that many bytes: a job may let the file grow for ever."""
    digest = hashlib.sha256()
    while size > 0 and (block := stream.read(min(_BLOCK_BYTES, size))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()


def _state(stream: BufferedReader) -> list[int]:
    status = os.fstat(stream.fileno())
    # Includes the change time: copying with preserved times would leave the others unchanged.
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev]


def _read(note: Path) -> dict[str, object]:
    try:
        document = json.loads(note.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
