"""Unpacks an archive of a directory, in a process of its own: `python -m workers.fetching.code.unpack`.

Takes tar, tar.gz and tar.zst. Files, directories and links within the directory are made; everything else is refused,
and so is what is larger than the limits. The process may use little memory, because headers of an archive may ask for
any amount.
"""

import contextlib
import errno
import gzip
import os
import resource
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

import zstandard

from app.domain.files.content import GZIP, ZSTD
from app.domain.spec.locations.code import LONGEST_PATH, MOST_PARTS, can_be_shown
from workers.fetching.cache import FREE_BYTES
from workers.fetching.child.server import ProgressReporter, serve

_MEMORY_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
_WINDOW_BYTES = 128 << 20  # of zstd: what its command line takes without being asked
_LONGEST_NAME = 255
_MOST_LOOPS = 100
_GLOBAL_HEADERS = frozenset({"comment"})  # of `git archive`
_BROKEN = (
    *(tarfile.TarError, OSError, EOFError, zlib.error, zstandard.ZstdError),
    *(MemoryError, RecursionError, ValueError, OverflowError),
)
# What says nothing about the archive; other errors, such as EILSEQ, are of its names.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DISK = _FULL | {
    errno.EIO,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ESTALE,
    errno.ENOENT,
    errno.EMFILE,
    errno.ENFILE,
}


class BadArchive(Exception):
    """What the archive contains cannot be, or may not be, a directory here."""


class _TooLarge(BadArchive):
    """It exceeds a limit."""


@dataclass(frozen=True, kw_only=True)
class UnpackLimits:
    max_bytes: int
    max_files: int


class _Counted:
    """A stream that refuses to be longer than what the files and their headers may take."""

    def __init__(self, stream: IO[bytes], limits: UnpackLimits, on_bytes: Callable[[int], None]) -> None:
        self._stream, self._limits, self._on_bytes = stream, limits, on_bytes
        # A header, a long name and padding for each file, at most.
        self._left = limits.max_bytes + (limits.max_files + 2) * 8192

    def read(self, size: int) -> bytes:
        found = self._stream.read(size)
        self._left -= len(found)
        self._on_bytes(len(found))
        if self._left < 0:
            raise _too_many_bytes(self._limits)
        return found


def work(request: dict[str, Any], heart: ProgressReporter) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    limits = UnpackLimits(max_bytes=request["max_bytes"], max_files=request["max_files"])
    try:
        return {
            "files": unpack(
                Path(request["archive"]), Path(request["target"]), limits, request["skip"], on_bytes=heart.arrived
            )
        }
    except BadArchive as error:
        return {"failure": str(error), "too_large": isinstance(error, _TooLarge)}
    except OSError as error:
        error_type = "DISK_FULL" if error.errno in _FULL else "STORAGE_ERROR"
        return {"failure": f"it can't be unpacked: {error.strerror}", "error_type": error_type}


def unpack(
    archive: Path,
    target: Path,
    limits: UnpackLimits,
    skip: list[str] | tuple[str, ...] = (),
    *,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> int:
    """Unpack into the directory ``target``, which must not exist; returns the number of files.

    Raises BadArchive, and OSError for the disk's failures.

    ``skip``: patterns of names that are left out.
    """
    target.mkdir(parents=True)
    with archive.open("rb") as packed:
        try:
            with _opened(packed, limits, on_bytes) as tar:
                return _Unpacking(target, limits, skip).run(tar)
        except BadArchive:
            raise
        except _BROKEN as error:
            if isinstance(error, OSError) and error.errno in _DISK:
                raise
            reason = str(error) or type(error).__name__
            raise BadArchive(
                f"it is no archive that can be unpacked (tar, tar.gz or tar.zst): {reason}"[:300]
            ) from error


@contextlib.contextmanager
def _opened(packed: IO[bytes], limits: UnpackLimits, on_bytes: Callable[[int], None]) -> Iterator[tarfile.TarFile]:
    head = packed.read(4)
    packed.seek(0)
    stream: Any = packed
    if head.startswith(GZIP):
        stream = gzip.GzipFile(fileobj=packed)
    elif head.startswith(ZSTD):
        unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        stream = unpacker.stream_reader(packed, read_across_frames=True)
    counted: Any = _Counted(stream, limits, on_bytes)
    with tarfile.open(fileobj=counted, mode="r|", bufsize=_PIECE_BYTES) as tar:
        yield tar


class _Unpacking:
    def __init__(self, target: Path, limits: UnpackLimits, skip: list[str] | tuple[str, ...]) -> None:
        self._target, self._limits, self._skip = target, limits, tuple(skip)
        self._files: dict[str, int] = {}
        self._links: dict[str, str] = {}
        self._directories: set[str] = set()
        self._bytes = self._entries = 0

    def run(self, tar: tarfile.TarFile) -> int:
        for entry in tar:
            if not tar.pax_headers.keys() <= _GLOBAL_HEADERS:
                raise BadArchive("it has global headers, which are not supported; make it with other options")
            self._entries += 1
            self._refuse_more(self._entries)
            name = _checked_name(entry.name)
            if name and not any(fnmatch(name, pattern) for pattern in self._skip):
                self._add(tar, entry, name)
        self._link()
        if not self._files and not self._skip:
            raise BadArchive("it contains no file")
        return len(self._files)

    def _add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, name: str) -> None:
        if entry.isdir():
            self._directory(name, name)
        elif name in self._files or name in self._links:
            raise BadArchive(f"{name[:200]!r} is in it twice")
        elif entry.issym():
            self._links[name] = _checked_link(name, entry.linkname)
        elif entry.islnk():
            self._hard_link(name, _checked_name(entry.linkname))
        elif entry.isreg() and not entry.sparse:
            self._parent(name)
            self._write(tar, entry, name)
        else:
            raise BadArchive(f"{name[:200]!r} is a device, a pipe or a sparse file, which are not unpacked")

    def _refuse_more(self, count: int) -> None:
        if count > self._limits.max_files:
            raise _TooLarge(f"it has more than {self._limits.max_files:,} files and directories, the most allowed")

    def _parent(self, name: str) -> None:
        self._directory(name.rpartition("/")[0], name)

    def _directory(self, directory: str, name: str) -> None:
        """Make it with those above; each counts, because a long name makes many."""
        parts = directory.split("/") if directory else []
        for length in range(1, len(parts) + 1):
            each = "/".join(parts[:length])
            if each in self._directories:
                continue
            self._refuse_more(len(self._directories) + 1)
            try:
                (self._target / each).mkdir()
            except (FileExistsError, NotADirectoryError) as error:
                raise BadArchive(f"{name[:200]!r} is in a directory that is a file, too") from error
            self._directories.add(each)

    def _write(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, name: str) -> None:
        self._bytes += entry.size
        if self._bytes > self._limits.max_bytes:
            raise _too_many_bytes(self._limits)
        content = tar.extractfile(entry)
        if content is None:
            raise BadArchive(f"{name[:200]!r} has no content")
        path = self._target / name
        if name in self._directories:
            raise BadArchive(f"{name[:200]!r} is a file and a directory")
        if shutil.disk_usage(self._target).free < entry.size + FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _PIECE_BYTES)
            if file.tell() != entry.size:
                raise BadArchive("it is cut off")
            os.fchmod(file.fileno(), 0o755 if entry.mode & 0o100 else 0o644)
        self._files[name] = entry.size

    def _hard_link(self, name: str, other: str) -> None:
        if other not in self._files:
            raise BadArchive(f"{name[:200]!r} is a link to {other[:200]!r}, which is not in it")
        self._parent(name)
        os.link(self._target / other, self._target / name, follow_symlinks=False)
        self._files[name] = 0

    def _link(self) -> None:
        """Last, so that nothing is written through a link; then each must end in the directory."""
        for name, other in self._links.items():
            self._parent(name)
            try:
                (self._target / name).symlink_to(other)
            except FileExistsError as error:
                raise BadArchive(f"{name[:200]!r} is in it twice") from error
        root, loops = os.path.realpath(self._target), 0
        for name, other in self._links.items():
            path = self._target / name
            if _is_endless(path):
                loops += 1
                # Of more links than the kernel follows, only loops are harmless to programs that follow them all.
                if loops > _MOST_LOOPS or not os.path.islink(_real(path, name)):  # noqa: PTH114 – text only
                    raise BadArchive(f"the link {name[:200]!r} leads through too many others")
            real = _real(path, name)
            if real == root:
                raise BadArchive(f"the link {name[:200]!r} leads to the directory itself, which then contains itself")
            if not real.startswith(f"{root}/"):
                raise BadArchive(f"the link {name[:200]!r} leads out of the directory, to {other[:200]!r}")


def _checked_name(name: str) -> str:
    """The path below the directory; empty for the directory itself."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise BadArchive(f"{name[:200]!r} leads out of the directory")
    plain = "/".join(parts)
    if not can_be_shown(plain) or any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise BadArchive(f"{name[:200]!r} can't be the name of a file")
    if len(parts) > MOST_PARTS or len(plain.encode()) > LONGEST_PATH:
        raise BadArchive(
            f"the path {name[:200]!r} is longer than {LONGEST_PATH} bytes or {MOST_PARTS} names, the most allowed"
        )
    return plain


def _is_endless(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _real(path: Path, name: str) -> str:
    try:
        return os.path.realpath(path)
    except RecursionError as error:
        raise BadArchive(f"the link {name[:200]!r} leads through too many others") from error


def _checked_link(name: str, other: str) -> str:
    inner = os.path.normpath(os.path.join(os.path.dirname(name), other))  # noqa: PTH118, PTH120 – text only
    if not can_be_shown(other) or len(other.encode()) > LONGEST_PATH:
        raise BadArchive(f"the link {name[:200]!r} can't lead to {other[:200]!r}")
    if not other or other.startswith("/") or inner == ".." or inner.startswith("../"):
        raise BadArchive(f"the link {name[:200]!r} leads out of the directory, to {other[:200]!r}")
    return other


def _too_many_bytes(limits: UnpackLimits) -> _TooLarge:
    return _TooLarge(f"its files have more than {limits.max_bytes:,} bytes, the most allowed")


if __name__ == "__main__":
    sys.exit(serve(work))
