"""A directory on a local disk, opened without following links: each component is opened relative to its parent.

A user with write access beside the directory could replace it by a link after its path was checked.
"""

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app.storage.failures import PERMANENT
from app.storage.object_keys import TEMPORARY
from trainyard.protocol.durability import sync
from workers.publishing.copying import Arrived, digest_of
from workers.publishing.failures import AlreadyClaimed, NotPublished
from workers.publishing.orders import PublishedFile

BLOCK_BYTES = 1 << 20
STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalTarget:
    """``path`` is absolute and resolved; ``token`` distinguishes our temporary files from foreign ones."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._temporary = f"{TEMPORARY}{token}"

    def check(self) -> None:
        """Check that files could be written there now, or the directory be created. Raises NotPublished."""
        with self._explaining():
            existing = self._path
            while not os.path.lexists(existing):
                existing = str(Path(existing).parent)
            with _opened(existing) as directory:
                # Another node of the job may check it at the same time, and a killed one may have left its file.
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self._temporary, NEW, 0o600, dir_fd=directory))
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._temporary, dir_fd=directory)

    def read(self, folder: str, path: str, most: int) -> bytes | None:
        with self._explaining(), self._file(folder, path) as file:
            return file.read(most) if file is not None else None

    def is_free(self, folder: str) -> bool:
        with self._explaining():
            try:
                with _opened(self._at(folder)) as directory:
                    names = [entry.name for entry in Path(f"/proc/self/fd/{directory}").iterdir()]
            except FileNotFoundError:
                return True
            return all(name.startswith(self._temporary) for name in names)

    def claim(self, folder: str, path: str, data: bytes) -> None:
        with self._explaining(), _opened(self._at(folder), make=True) as directory:
            try:
                descriptor = os.open(path, NEW, 0o644, dir_fd=directory)
            except FileExistsError:
                raise AlreadyClaimed from None
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            _sync(directory)

    def write(self, folder: str, path: str, data: bytes) -> None:
        with self._explaining(), self._replacing(folder, path) as target:
            target.write(data)

    def put(self, folder: str, file: PublishedFile, source: BinaryIO, arrived: Arrived) -> None:
        with self._explaining(), self._replacing(folder, file.path) as target:
            while block := source.read(BLOCK_BYTES):
                target.write(block)
                arrived(len(block))

    def digest(self, folder: str, path: str, arrived: Arrived) -> tuple[int, str] | None:
        with self._explaining(), self._file(folder, path) as file:
            if file is None:
                return None
            return digest_of(iter(functools.partial(file.read, BLOCK_BYTES), b""), arrived)

    def remove(self, folder: str, path: str) -> None:
        parent, name = _parent(self._at(folder), path), path.rpartition("/")[2]
        with self._explaining(), contextlib.suppress(FileNotFoundError), _opened(parent) as directory:
            os.unlink(name, dir_fd=directory)

    def _at(self, folder: str) -> str:
        return f"{self._path}/{folder}" if folder else self._path

    @contextlib.contextmanager
    def _file(self, folder: str, path: str) -> Iterator[BinaryIO | None]:
        """A regular file, open for reading; None for anything else."""
        try:
            with _opened(_parent(self._at(folder), path)) as directory:
                descriptor = os.open(path.rpartition("/")[2], READ, dir_fd=directory)
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            yield None
            return
        with os.fdopen(descriptor, "rb") as file:
            yield file if stat.S_ISREG(os.fstat(descriptor).st_mode) else None

    @contextlib.contextmanager
    def _replacing(self, folder: str, path: str) -> Iterator[BinaryIO]:
        """A new file that atomically takes the name when the block succeeds."""
        base = self._at(folder)
        with _opened(base, make=True) as top, _opened(_parent(base, path), make=True) as directory:
            with contextlib.suppress(FileNotFoundError):  # left by a killed try
                os.unlink(self._temporary, dir_fd=top)
            with os.fdopen(os.open(self._temporary, NEW, 0o644, dir_fd=top), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.rename(self._temporary, path.rpartition("/")[2], src_dir_fd=top, dst_dir_fd=directory)
            _sync(directory)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NotPublished(f"{self._path}: {_explained(error)}", transient=_may_pass(error)) from error


def _explained(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.strerror}; let the user that Trainyard runs as write there, or name another directory"
    if error.errno in FULL:
        return f"{error.strerror}; free some space there, or name another directory"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a component of the path became a link or a file; name a directory"
    return str(error.strerror)


def _may_pass(error: OSError) -> bool:
    return error.errno not in PERMANENT | FULL | {errno.ENOTDIR}


def _parent(base: str, path: str) -> str:
    folder = path.rpartition("/")[0]
    return f"{base}/{folder}" if folder else base


@contextlib.contextmanager
def _opened(path: str, *, make: bool = False) -> Iterator[int]:
    """The directory, opened without following any link; ``make`` creates missing components."""
    descriptor = os.open("/", STEP)
    try:
        for name in filter(None, path.split("/")):
            before, descriptor = descriptor, _step(descriptor, name, make=make)
            os.close(before)
        yield descriptor
    finally:
        os.close(descriptor)


def _step(directory: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, STEP, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # another process created it
        os.mkdir(name, 0o755, dir_fd=directory)
        _sync(directory)
    return os.open(name, STEP, dir_fd=directory)


def _sync(directory: int) -> None:
    # A descriptor that only names a directory cannot be synced, and reading it may not be allowed.
    with contextlib.suppress(PermissionError):
        sync(".", dir_fd=directory)
