"""SHA-256 of local files, cached as long as the files do not change."""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from workers.fetching.cache import write_synced

# A file that changes again within the clock's tick keeps its times, so digests of recently written files are not
# cached.
SETTLED_SECONDS = 2.0


class Digests:
    """Caches digests in a directory; without one they are computed each time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, path: Path) -> str:
        """Raises OSError."""
        before = _state(path)
        note = self._directory / hashlib.sha256(os.fsencode(path)).hexdigest()
        known = _read(note)
        if known.get("state") == before:
            return str(known["sha256"])
        with path.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        newest = max(before[2], before[3]) / 1e9
        if _state(path) == before and time.time() - newest > SETTLED_SECONDS:
            with contextlib.suppress(OSError):  # it only costs the next attempt some time
                self._directory.mkdir(parents=True, exist_ok=True)
                write_synced(note, json.dumps({"state": before, "sha256": sha256}))
        return sha256


def joined(digests: list[str]) -> str:
    """One digest over those of several files, in order; empty when there are none, or one is unknown."""
    known = bool(digests) and all(digests)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest() if known else ""


def _state(path: Path) -> list[int]:
    status = path.stat()
    # Includes the change time: copying with preserved times would leave the others unchanged.
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev]


def _read(note: Path) -> dict[str, object]:
    try:
        document = json.loads(note.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
