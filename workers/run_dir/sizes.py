"""How much disk space the files of a directory take."""

import logging
import os
import stat
import sys
from contextlib import closing
from pathlib import Path

log = logging.getLogger(__name__)

RESUME = "resume"  # a checkpoint that the platform has put into a run directory
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's are
_LEAST_BYTES = 4096  # of an entry: a file without content takes space for its name and its inode
_MOST_OPEN = 64  # directories at a time; those below them are found again by their ".."
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def allocated_bytes(directory: Path, *, besides: str = "", most_bytes: int = sys.maxsize) -> int:
    """Disk space of all entries below the directory, at least 4 KiB for each, but for what is in its ``besides``.

    Stops where it is more than ``most_bytes``: it takes at least the result then. Files that vanish meanwhile count
    nothing, nor do those in directories that this process may not read, or that are moved while it is in them.
    """
    with closing(_Walk(most_bytes)) as walk:
        try:
            walk.enter(os.open(directory, _DIRECTORY), besides)
        except OSError as error:
            log.debug("%s is not counted: %s", directory, error)
        while walk.goes_on:
            walk.step()
        return walk.total


class _Level:
    """A directory on the way down, and the names of those in it that are to be counted."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self.names: list[str] = []
        self._identity = _identity(descriptor)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None

    def reopen(self, child: int | None) -> None:
        """From a directory in it. Nothing more of this one is counted where that has been moved."""
        try:
            if child is None:
                raise FileNotFoundError("its directory is not open")
            self.descriptor = os.open("..", _DIRECTORY, dir_fd=child)
            if _identity(self.descriptor) != self._identity:
                self.close()
                raise FileNotFoundError("its directory was moved")
        except OSError as error:
            log.debug("not all is counted: %s", error)
            self.names.clear()


class _Walk:
    """Goes by descriptors: paths of a job's directories may be longer than the kernel takes."""

    def __init__(self, most_bytes: int) -> None:
        self.total = 0
        self._most = most_bytes
        self._levels: list[_Level] = []

    @property
    def goes_on(self) -> bool:
        return bool(self._levels) and self.total <= self._most

    def enter(self, descriptor: int, besides: str = "") -> None:
        """Count the entries of a directory, which is closed later. Raises OSError."""
        level = _Level(descriptor)
        if len(self._levels) > _MOST_OPEN:
            self._levels[-1].close()
        self._levels.append(level)
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if self._counts_directory(entry) and entry.name != besides:
                    level.names.append(entry.name)
                if self.total > self._most:
                    return

    def step(self) -> None:
        """Go into the next directory, or back up."""
        level = self._levels[-1]
        if not level.names:
            self._leave()
            return
        name = level.names.pop()
        try:
            self.enter(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=level.descriptor))
        except OSError as error:
            log.debug("not all is counted: %s", error)

    def close(self) -> None:
        for level in self._levels:
            level.close()

    def _leave(self) -> None:
        left = self._levels.pop()
        if self._levels and self._levels[-1].descriptor is None:
            self._levels[-1].reopen(left.descriptor)
        left.close()

    def _counts_directory(self, entry: os.DirEntry[str]) -> bool:
        """Count an entry; whether it is a directory."""
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:  # a directory that this process may list, but not search
            self.total += _LEAST_BYTES
            return False
        self.total += max(_LEAST_BYTES, found.st_blocks * _BLOCK_BYTES)
        return stat.S_ISDIR(found.st_mode)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
