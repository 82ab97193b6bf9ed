"""The node's fetch cache: files by their SHA-256, and an index of the content behind each URI.

Users of a file hold a hard link to it, in a directory that is deleted with their process (``directory_locks``).
Therefore a file with more than one name is in use, and one that is evicted between a lookup and its use is only fetched
again.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from trainyard.protocol.durability import sync
from workers.fetching import directory_locks
from workers.fetching.failures import FetchTooLarge, NoRoom, Trouble

# Disks can corrupt data without a change of size or time, so long-lived files are verified now and then.
RECHECK_SECONDS = 7 * 86400.0
FORGET_SECONDS = 90 * 86400.0
SWEEP_SECONDS = 86400.0
FREE_BYTES = 64 << 20  # reserved for other users of the disk
STEP_BYTES = 64 << 20  # reservation step of a download of unknown size
HASH_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """The last known content behind a URI; ``version`` is the server's."""

    location: str
    version: str
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The state of a stored file when its digest was verified."""

    size: int
    mtime_ns: int
    checked_at: float


class Cache:
    """Several processes may use one directory at the same time."""

    def __init__(self, root: Path, max_bytes: int, *, on_bytes: Callable[[int], None] = lambda _: None) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._on_bytes = on_bytes

    def alone(self, key: str) -> contextlib.AbstractContextManager[None]:
        """A lock per key: what two attempts need at once is downloaded once."""
        return directory_locks.locked(self._root / "locks" / _digest(key), waiting=lambda: self._on_bytes(0))

    def entry(self, key: str) -> CacheEntry | None:
        """The last known content behind a URI; ``link`` shows whether it is still cached."""
        try:
            return CacheEntry(**json.loads(self._index(key).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def remember(self, key: str, entry: CacheEntry) -> None:
        self._write(self._index(key), json.dumps(asdict(entry)))

    def note(self, key: str, text: str) -> None:
        """Store a text that does not belong to one file."""
        self._write(self._index(key), text)

    def noted(self, key: str) -> str | None:
        try:
            return self._index(key).read_text()
        except FileNotFoundError:
            return None

    def link(self, sha256: str, target: Path) -> int | None:
        """Hard-link the file as ``target``; returns its size, or None when it is missing or changed."""
        stored = self._object(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _link(stored, target)
        except FileNotFoundError:
            return None
        if not self._is_right(sha256, target):
            target.unlink()
            stored.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(self._record(sha256))  # its last use for eviction
        return target.stat().st_size

    @contextlib.contextmanager
    def scratch(self, size: int) -> Iterator[Path]:
        """A directory for one download, of ``size`` bytes if known. Raises FetchTooLarge, NoRoom, Trouble."""
        self.make_room(size)
        with directory_locks.DirectoryLock(self._root / "parts", str(size)) as directory:
            try:
                yield directory.path
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    full = Trouble if error.errno == errno.EFBIG else NoRoom  # an oversized file never fits
                    raise full(f"the disk of the node's cache is full: {error.strerror}") from error
                raise

    def adopt(self, part: Path, target: Path, *, expected: str = "") -> str:
        """Move a complete file into the cache and link it as ``target``; returns its digest. Raises Trouble."""
        with part.open("rb") as stream:
            os.fchmod(stream.fileno(), 0o444)
            sha256 = self._hash(stream)
            if expected and sha256 != expected:
                raise Trouble(f"{target.name}: the content differs from what its server lists (SHA-256 {sha256})")
            os.fsync(stream.fileno())
            status = os.fstat(stream.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(part, target)  # before it could be evicted
        stored = self._object(sha256)
        stored.parent.mkdir(parents=True, exist_ok=True)
        self._record_state(sha256, status)
        part.replace(stored)
        sync(stored.parent)
        return sha256

    def make_room(self, size: int) -> None:
        """Evict least recently used files until this many more bytes fit. Raises FetchTooLarge, NoRoom."""
        if size > self._max_bytes:
            raise FetchTooLarge(
                f"its {size} bytes are more than this node may keep ({self._max_bytes}); have the administrator raise "
                "TRAINYARD_CACHE_MAX_BYTES"
            )
        self._root.mkdir(parents=True, exist_ok=True)
        with directory_locks.locked(self._root / "locks" / "room", waiting=lambda: self._on_bytes(0)):
            self._sweep()
            missing = self._evict(self._missing(size))
        if missing > 0:
            raise NoRoom(
                f"{missing} bytes of room are missing in the node's cache, and everything in it is in use; wait for "
                "other jobs, free disk space, or raise TRAINYARD_CACHE_MAX_BYTES"
            )

    def _missing(self, size: int) -> int:
        fetching, to_come = self._being_fetched()
        used = sum(status.st_size for _, status in self._objects()) + fetching
        free = shutil.disk_usage(self._root).free - to_come
        return max(used + size - self._max_bytes, size + FREE_BYTES - free)

    def _evict(self, missing: int) -> int:
        """Bytes still missing."""
        unused = [(self._last_used(path), path, status) for path, status in self._objects() if status.st_nlink == 1]
        for _, path, status in sorted(unused, key=lambda each: each[0]):
            if missing <= 0:
                break
            path.unlink(missing_ok=True)
            self._record(path.name).unlink(missing_ok=True)
            missing -= status.st_size
        return missing

    def _sweep(self) -> None:
        for name in ("uses", "parts"):
            directory_locks.sweep(self._root / name)
        self._forget()

    def _forget(self) -> None:
        """Once a day, delete records unused for long: each is small, but there is one per file ever fetched."""
        marker, now = self._root / "swept", time.time()
        if marker.exists() and now - marker.stat().st_mtime < SWEEP_SECONDS:
            return
        marker.touch()
        for path in (path for name in ("index", "local") for path in (self._root / name).glob("*")):
            with contextlib.suppress(FileNotFoundError):
                if now - path.stat().st_mtime > FORGET_SECONDS:
                    path.unlink()

    def _objects(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (self._root / "objects").glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()

    def _being_fetched(self) -> tuple[int, int]:
        """(bytes that downloads use or have reserved, how many of them are not on disk yet)."""
        total = to_come = 0
        for directory in (self._root / "parts").glob("*/"):
            announced, stored = int(directory.name.partition("-")[0]), stored_bytes(directory)
            total += max(announced, stored)
            to_come += max(0, announced - stored)
        return total, to_come

    def _is_right(self, sha256: str, path: Path) -> bool:
        status, now = path.stat(), time.time()
        record = self._recorded(sha256)
        if (
            record is not None
            and (record.size, record.mtime_ns) == (status.st_size, status.st_mtime_ns)
            and 0 <= now - record.checked_at < RECHECK_SECONDS
        ):
            return True
        with path.open("rb") as stream:
            if self._hash(stream) != sha256:
                return False
        self._record_state(sha256, status)
        return True

    def _hash(self, stream: BinaryIO) -> str:
        digest = hashlib.sha256()
        while block := stream.read(HASH_BYTES):
            digest.update(block)
            self._on_bytes(len(block))
        return digest.hexdigest()

    def _recorded(self, sha256: str) -> _Record | None:
        try:
            return _Record(**json.loads(self._record(sha256).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _record_state(self, sha256: str, status: os.stat_result) -> None:
        record = _Record(size=status.st_size, mtime_ns=status.st_mtime_ns, checked_at=time.time())
        self._write(self._record(sha256), json.dumps(asdict(record)))

    def _last_used(self, path: Path) -> float:
        try:
            return self._record(path.name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _object(self, sha256: str) -> Path:
        return stored_at(self._root, sha256)

    def _record(self, sha256: str) -> Path:
        return self._root / "records" / sha256

    def _index(self, key: str) -> Path:
        return self._root / "index" / _digest(key)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(path, text)


def stored_at(root: Path, sha256: str) -> Path:
    """The cache path of the file with this digest."""
    return root / "objects" / sha256[:2] / sha256


def stored_bytes(directory: Path) -> int:
    """Size of all files below; also counts blocks, because some downloads preallocate the full size."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 – a hot loop
    return total


def write_synced(path: Path, text: str) -> None:
    """Write a file atomically and durably."""
    temporary = path.with_name(f".{secrets.token_hex(6)}")
    with temporary.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        # File systems without hard links, and the limit of 65000 links per file.
        if error.errno not in (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EXDEV):
            raise
        shutil.copyfile(source, target)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
