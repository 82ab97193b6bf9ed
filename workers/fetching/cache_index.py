"""Index of the models and data in this node's cache: updated when an attempt uses one, reported to the planner."""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.domain.scheduling.data_locality import Holding, source_key
from workers.fetching.cache import stored_at, write_synced
from workers.fetching.items import FetchedFile, Item

MOST_SOURCES = 64  # most recently used
MOST_FILES = 256  # the largest of a source: nearly all of its bytes
# a directory's modification time has a coarse resolution: a change within the same tick would be missed
SETTLED_NS = 1_000_000_000


def note(root: Path, item: Item, files: Sequence[FetchedFile]) -> None:
    """Record that an attempt uses the item and has all of it. Errors are ignored, because only the planner needs the
    record.
    """
    if item.without_weights or not files:
        return
    key = source_key(item.kind, item.location, item.revision if item.kind == "model" else item.split)
    largest = sorted(files, key=lambda file: (-file.size_bytes, file.name))[:MOST_FILES]
    document = {
        "size_bytes": sum(file.size_bytes for file in files),
        "files": [[file.sha256, file.size_bytes] for file in largest],
    }
    with contextlib.suppress(OSError):
        (root / "sources").mkdir(parents=True, exist_ok=True)
        write_synced(root / "sources" / key, json.dumps(document))


class CacheIndex:
    """Reread only when the cache's directories have changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: Sequence[int] = ()
        self._held: Mapping[str, Holding] = {}

    def now(self) -> Mapping[str, Holding]:
        """The most recently used entries by key; deletes records of evicted items."""
        times = self._times()
        if not times:
            return {}
        if times != self._seen:
            self._held = self._read()
            self._seen = times if time.time_ns() - max(times) > SETTLED_NS else ()
        return self._held

    def _times(self) -> Sequence[int]:
        found = []
        for directory in (self._root / "sources", *sorted((self._root / "objects").glob("??"))):
            with contextlib.suppress(FileNotFoundError):
                found.append(directory.stat().st_mtime_ns)
        return found

    def _read(self) -> Mapping[str, Holding]:
        held: dict[str, Holding] = {}
        for key in self._last_used_first():
            holding = self._holding(key) if len(held) < MOST_SOURCES else None
            if holding is None:
                (self._root / "sources" / key).unlink(missing_ok=True)
            else:
                held[key] = holding
        return held

    def _last_used_first(self) -> Sequence[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / "sources") as entries:
            notes = [(entry.stat().st_mtime_ns, entry.name) for entry in entries if not entry.name.startswith(".")]
            return [name for _, name in sorted(notes, reverse=True)]
        return []

    def _holding(self, key: str) -> Holding | None:
        """None when nothing of it is left."""
        try:
            document = json.loads((self._root / "sources" / key).read_text())
            files, size_bytes = [(str(sha256), int(size)) for sha256, size in document["files"]], document["size_bytes"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        there = [size for sha256, size in files if stored_at(self._root, sha256).exists()]
        if not there:
            return None
        missing = sum(size for _, size in files) - sum(there)
        return Holding(held_bytes=size_bytes - missing, size_bytes=size_bytes)
