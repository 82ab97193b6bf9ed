"""Checkpoint directories that exist only when complete: atomic commit, verification, digest."""

import errno
import hashlib
import io
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from trainyard.protocol.durability import sync
from trainyard.protocol.json import JSON, dumps

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint; `path` is relative, with forward slashes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a checkpoint, and the point of the run at which it was taken."""

    job_id: str
    attempt: int
    step: int
    epoch: float = 0.0
    world_size: int = 1
    threads_per_rank: int = 1
    framework: str = ""
    training_type: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    data_position: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = ""
    files: tuple[FileEntry, ...] = ()
    format: int = FORMAT

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.files)

    def to_json(self) -> str:
        return dumps(asdict(self), indent=1) + "\n"


class CorruptCheckpoint(Exception):
    """A checkpoint that must not be used: `file` is the bad file, `what` the reason."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file}: {what}")
        self.file = file
        self.what = what


def commit(tmp_dir: Path | str, final_dir: Path | str, manifest: Manifest) -> Manifest:
    """Turn `tmp_dir` into the complete checkpoint `final_dir` and return its full manifest.

    Both must lie on one file system and `final_dir` must not exist. After a crash at any moment
    either the whole checkpoint is there under its final name, or nothing is. Raises ValueError
    for an empty directory, a link or a special file, OSError when the disk refuses; the caller
    must then remove `tmp_dir`.
    """
    source, target = Path(tmp_dir), Path(final_dir)
    if target.exists():
        raise FileExistsError(f"checkpoint {target} exists already")
    (source / NAME).unlink(missing_ok=True)
    entries = tuple(_stored(source, path) for path in _files(source))
    if not entries:
        raise ValueError(f"checkpoint directory {source} is empty: nothing was written into it")
    written = _completed(manifest, entries)
    _write_synced(source / NAME, written.to_json())
    for directory, _, _ in os.walk(source):
        sync(Path(directory))
    source.rename(target)
    sync(target.parent)
    return written


def read(directory: Path | str) -> Manifest:
    """Read and check the manifest, but not the files. Raises CorruptCheckpoint."""
    try:
        with _opened(Path(directory) / NAME) as file:
            return _from_document(json.loads(file.read().decode("utf-8")))
    except FileNotFoundError as error:
        raise CorruptCheckpoint(NAME, "missing, so the checkpoint was never completed") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptCheckpoint(NAME, f"not readable as a manifest ({error})") from error


def verify(directory: Path | str) -> Manifest:
    """The manifest, after checking that exactly its files exist with size and hash. Raises CorruptCheckpoint."""
    root = Path(directory)
    manifest = read(root)
    try:
        found = {path.as_posix() for path in _files(root)} - {NAME}
    except ValueError as error:
        raise CorruptCheckpoint(root.name, str(error)) from error
    for entry in manifest.files:
        if entry.path not in found:
            raise CorruptCheckpoint(entry.path, "missing")
        _check(root, entry)
    for extra in sorted(found - {entry.path for entry in manifest.files}):
        raise CorruptCheckpoint(extra, "not listed in the manifest")
    return manifest


def digest(manifest: Manifest) -> str:
    """SHA-256 over the sorted "path size sha256" lines: equal digests mean equal content."""
    lines = sorted(f"{entry.path} {entry.size} {entry.sha256}\n" for entry in manifest.files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def discard(directory: Path | str) -> None:
    """Remove an unfinished checkpoint directory, if it exists."""
    shutil.rmtree(directory, ignore_errors=True)


def _files(root: Path) -> Iterator[Path]:
    """Every regular file below `root`, relative to it, in a stable order."""
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files) + [name for name in names if (Path(directory) / name).is_symlink()]:
            path = Path(directory) / name
            # A link may point outside, and its copy would differ from what was hashed.
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ValueError(f"{path.relative_to(root)} is not a regular file")
            yield path.relative_to(root)


def _stored(root: Path, relative: Path) -> FileEntry:
    with (root / relative).open("rb") as file:
        os.fsync(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(relative.as_posix(), os.fstat(file.fileno()).st_size, sha256)


def _opened(path: Path) -> io.BufferedReader:
    """Open a regular file, never through a link; the writer of the directory may still be changing it."""
    # Without O_NONBLOCK a pipe in the file's place would block forever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError(f"{path.name} is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _check(root: Path, entry: FileEntry) -> None:
    try:
        opened = _opened(root / entry.path)
    except (FileNotFoundError, ValueError) as error:
        raise CorruptCheckpoint(entry.path, f"can't be read ({error})") from error
    with opened as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.size:
            raise CorruptCheckpoint(entry.path, f"has {size} bytes, not {entry.size}")
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise CorruptCheckpoint(entry.path, "content differs from its SHA-256")


def _completed(manifest: Manifest, entries: tuple[FileEntry, ...]) -> Manifest:
    created_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    values = {item.name: getattr(manifest, item.name) for item in fields(manifest)}
    return Manifest(**{**values, "created_at": created_at, "files": entries})


def _from_document(document: JSON) -> Manifest:
    if not isinstance(document, dict):
        raise TypeError("not a JSON object")
    if document.get("format") != FORMAT:
        raise ValueError(f"format {document.get('format')!r} is not {FORMAT}")
    known = {item.name for item in fields(Manifest)}
    values = {name: value for name, value in document.items() if name in known}
    values["files"] = tuple(_entry(item) for item in document["files"])
    return Manifest(**values)


def _entry(item: JSON) -> FileEntry:
    entry = FileEntry(path=str(item["path"]), size=int(item["size"]), sha256=str(item["sha256"]))
    path = PurePosixPath(entry.path)
    if path.is_absolute() or ".." in path.parts or entry.path != path.as_posix():
        raise ValueError(f"path {entry.path!r} leaves the checkpoint")
    return entry


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
