"""Directories of a cache that a file in them describes: kept while a process uses them, the oldest deleted first.

``DIRECTORY/<name>/`` is complete when its description is there; ``<name>.use`` is locked by those who use it.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.storage.beneath import DIRECTORY

_USE = ".use"
_held: list[int] = []  # descriptors of those that this process uses, until it ends


@dataclass(frozen=True)
class DescribedDirectories:
    """``description`` is the name of the JSON file, whose ``bytes`` are the size of the directory."""

    directory: Path
    description: str

    def opened(self, name: str, content: str) -> Mapping[str, Any] | None:
        """The description of a directory that is kept from now on; None if it is not here.

        ``content`` is what it must hold: a directory, and no link to one.
        """
        place = self.directory / name
        descriptor = self._use(place)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits while it is being deleted
            described: Mapping[str, Any] = json.loads((place / self.description).read_text())
            os.close(os.open(place / content, DIRECTORY))
            os.utime(place / self.description)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        _held.append(descriptor)
        return described

    def make_room(self, most_bytes: int, *, least_free: int = 0) -> None:
        """Delete directories that no process uses until the others are small enough, and so much disk is free."""
        found = []
        for description in self.directory.glob(f"*/{self.description}"):
            with contextlib.suppress(OSError, ValueError):
                size = json.loads(description.read_text())["bytes"]
                found.append((description.stat().st_mtime, description.parent, size))
        total = sum(size for _, _, size in found)
        for _, place, size in sorted(found):
            if total <= most_bytes and shutil.disk_usage(self.directory).free >= least_free:
                return
            if self._deleted(place):
                total -= size

    def _deleted(self, place: Path) -> bool:
        descriptor = self._use(place)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (place / self.description).unlink(missing_ok=True)  # first: without it the directory is not used
            shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _use(self, place: Path) -> int:
        return os.open(place.with_name(place.name + _USE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
