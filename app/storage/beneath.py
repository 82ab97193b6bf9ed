"""Opens files beneath a directory by descriptors, following no links even if the writer swaps entries meanwhile."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from app.domain.errors import InvalidRequest

BLOCK_BYTES = 1 << 20
MOST_LOOKS = 100
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe in place of a file would block forever.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The errors of opening a link, a socket, or a file in place of a directory.
_SWAPPED = frozenset({errno.ELOOP, errno.ENXIO, errno.ENOTDIR})


class RefusedFile(InvalidRequest):
    """A link that leads out of the directory, a device, a pipe, a socket, or a file that changes while it is read."""


@dataclass(frozen=True)
class FileDigest:
    """Size and digest of a file."""

    size_bytes: int
    sha256: str


def resolved(path: str | Path) -> str:
    """`os.path.realpath`, which reads a link after it has looked at it: again, when it was exchanged in between.

    Raises OSError when that never ends.
    """
    for _ in range(MOST_LOOKS):
        with suppress(OSError):
            return os.path.realpath(path)
    return os.path.realpath(path)


@contextmanager
def directory_opened(path: Path) -> Iterator[int]:
    """The descriptor of a directory that is not a link itself. Raises RefusedFile."""
    try:
        descriptor = os.open(path, DIRECTORY)
    except OSError as error:
        if error.errno in _SWAPPED:
            raise RefusedFile(
                f"{path.name} is not a directory but a link or a file; only a directory can be stored"
            ) from error
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def file_opened(root: int, path: str) -> Iterator[BinaryIO]:
    """A regular file beneath a directory, each part of its path opened from the one before. Raises RefusedFile."""
    *folders, name = path.split("/")
    directory = os.dup(root)
    try:
        for folder in folders:
            before, directory = directory, _opened(folder, DIRECTORY, directory, path)
            os.close(before)
        descriptor = _opened(name, FILE, directory, path)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield cast("BinaryIO", file)


@contextmanager
def located(path: Path, directory: Path) -> Iterator[int]:
    """A descriptor (O_PATH) of what lies at a path, behind links perhaps, if that is in the directory or the directory
    itself, even if links are exchanged meanwhile. Raises RefusedFile where it is not, and OSError.

    ``directory`` has no links in its path.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        real = _by_descriptor(descriptor).readlink()  # where the kernel knows it to be
        if not real.is_relative_to(directory):
            raise RefusedFile(f"{path.name} is a link that leads out of {directory.name}; put the file itself there")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def file_located(path: Path, directory: Path) -> Iterator[BufferedReader]:
    """As ``located``, a regular file, open for reading."""
    with located(path, directory) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_regular(path.name)
        # Through the descriptor, so that it is the file that was looked at.
        with _by_descriptor(descriptor).open("rb") as file:
            yield file


def copied(file: BinaryIO, path: str, write: Callable[[bytes], object] = len) -> FileDigest:
    """Size and digest of an open file, passing each block to ``write``. Raises RefusedFile if its size changes.

    Reads at most the initial size: the writer might let the file grow forever.
    """
    digest, size = hashlib.sha256(), os.fstat(file.fileno()).st_size
    left = size
    while left and (block := file.read(min(BLOCK_BYTES, left))):
        write(block)
        digest.update(block)
        left -= len(block)
    if left or file.read(1):
        raise changed(path)
    return FileDigest(size, digest.hexdigest())


def changed(path: str) -> RefusedFile:
    return RefusedFile(f"{path} was changed while it was being stored; write nothing to a file after offering it")


def _by_descriptor(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


def _opened(name: str, flags: int, directory: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in _SWAPPED:
            raise _not_regular(path) from error
        raise


def _not_regular(path: str) -> RefusedFile:
    return RefusedFile(f"{path} is not a regular file, or lies behind a link; only files can be stored")
