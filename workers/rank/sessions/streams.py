"""Bounded buffers between descriptors that do not block. Standard library only."""

import os

PIECE = 32 << 10
FULL = 128 << 10  # bytes in a buffer from which on nothing more is read for it


class BrokenStream(Exception):
    """The other end is closed."""


def read(fd: int) -> bytes | None:
    """Some bytes; none at the end; None when there are none yet."""
    try:
        return os.read(fd, PIECE)
    except BlockingIOError:
        return None
    except OSError:  # of a terminal: EIO, when no process has it open any more
        return b""


class OutputBuffer:
    """What is to be written to a descriptor."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= FULL

    def add(self, data: bytes) -> None:
        self._waiting += data

    def drop(self) -> None:
        self._waiting.clear()

    def write(self, fd: int) -> None:
        """As much as it takes. Raises BrokenStream."""
        try:
            written = os.write(fd, memoryview(self._waiting)[: 2 * PIECE].tobytes())
        except BlockingIOError:
            return
        except OSError as error:
            raise BrokenStream from error
        del self._waiting[:written]
