"""Reads the ranks' output from their pipes, numbers and stores it; a rank that writes faster than that waits."""

import errno
import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from app.storage.log_blocks import LogBlock
from config.redaction import Redaction
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.recording.log_numbering import LogNumbering
from workers.supervisor.recording.log_store import LogStore

READ_BYTES = 1 << 16  # at once: as many lines, if they are empty
TERMINAL_BYTES = 1 << 10  # of 4096 that the kernel hands out at once: the rest follows a moment later
LEFT_BYTES = 2 << 20  # upper limit for the rest in a pipe, which holds less
PRESSED_SECONDS = 0.02  # pause of reading while the storage is behind
GATHER_SECONDS = 0.05  # pause after a pipe was read empty: what comes meanwhile is read at once, and makes one block
LineListener = Callable[[list[str]], None]
LAST_LINES = 50  # of a rank, shown as the stack of an unexplained error


class RankLogs:
    """One pipe per rank; all methods belong to the loop's thread."""

    def __init__(self, loop: EventLoop, store: LogStore) -> None:
        self._loop = loop
        self._store = store
        self._ranks: dict[int, int] = {}  # pipe → rank
        self._open: set[int] = set()
        self._waiting: set[int] = set()  # pipes that are left unread for a moment
        self._gathers = True
        self._numbers: Sequence[int] = ()
        self._numbering = LogNumbering(0)
        self._last_blocks: dict[int, deque[LogBlock]] = {}
        self._on_lines: LineListener | None = None

    def read_from(
        self,
        fds: Sequence[int],
        redaction: Redaction,
        *,
        node_rank: int = 0,
        nodes: int = 1,
        numbers: Sequence[int] | None = None,
        on_lines: LineListener | None = None,
    ) -> None:
        """Read the pipes of this node's ranks, in rank order; ``on_lines`` gets the lines of the first.

        ``numbers``: of these ranks among all, where they do not follow each other.
        """
        self._on_lines = on_lines
        self._ranks = {fd: rank for rank, fd in enumerate(fds)}
        self._open = set(fds)
        self._numbers = numbers or range(node_rank * len(fds), (node_rank + 1) * len(fds))
        self._waiting.clear()
        self._gathers = True
        self._numbering = LogNumbering(
            len(fds), redaction=redaction, node_rank=node_rank, nodes=nodes, numbers=self._numbers
        )
        self._last_blocks = {rank: deque() for rank in range(len(fds))}
        for fd in fds:
            self._loop.watch(fd, partial(self._read, fd))

    @property
    def are_closed(self) -> bool:
        """Whether every writer has closed its pipe and everything was read."""
        return not self._open

    @property
    def last_lines(self) -> Mapping[int, list[str]]:
        return {self._numbers[rank]: _last_lines(blocks) for rank, blocks in self._last_blocks.items()}

    def hurry(self) -> None:
        """Read without pauses from now on: the ranks have ended."""
        self._gathers = False
        for fd in self._waiting:
            self._loop.watch(fd, partial(self._read, fd))
        self._waiting.clear()

    def catch_up(self) -> None:
        """Store what the ranks have written so far: a checkpoint is recorded after the lines that precede it."""
        for fd in self._open:
            self._drain(fd)

    def close(self) -> None:
        """Store the rest of each pipe, and close it."""
        for fd, rank in self._ranks.items():
            if fd in self._open:
                self._drain(fd)
            self._keep(rank, self._numbering.flush(rank))
            self._loop.forget(fd)
            os.close(fd)
        self._waiting.clear()

    def _read(self, fd: int) -> None:
        if not self._store.has_room:
            self._pause(fd, PRESSED_SECONDS)  # the pipe fills, and the rank's next write blocks
        elif data := _read(fd):
            rank = self._ranks[fd]
            self._keep(rank, self._numbering.feed(rank, data))
            if self._gathers and len(data) < _much(fd):
                self._pause(fd, GATHER_SECONDS)
        elif data is not None:
            self._loop.forget(fd)
            self._open.discard(fd)

    def _drain(self, fd: int) -> None:
        """Read the whole pipe, whether the store has room or not."""
        left = LEFT_BYTES
        while left > 0 and (data := _read(fd)):
            self._keep(self._ranks[fd], self._numbering.feed(self._ranks[fd], data))
            left -= len(data)

    def _pause(self, fd: int, seconds: float) -> None:
        """Do not read the pipe for a moment."""
        self._loop.forget(fd)
        self._waiting.add(fd)

        def again() -> None:
            if fd in self._waiting:
                self._waiting.discard(fd)
                self._loop.watch(fd, partial(self._read, fd))

        self._loop.call_after(seconds, again)

    def _keep(self, rank: int, block: LogBlock | None) -> None:
        if block is not None:
            _remember(self._last_blocks[rank], block)
            self._store.add(block)
            if rank == 0 and self._on_lines is not None:
                self._on_lines(block.lines())


def _remember(recent: deque[LogBlock], block: LogBlock) -> None:
    recent.append(block)
    while sum(each.count for each in recent) - recent[0].count >= LAST_LINES:
        recent.popleft()


def _last_lines(blocks: Iterable[LogBlock]) -> list[str]:
    return [line for block in blocks for line in block.lines()][-LAST_LINES:]


def _much(fd: int) -> int:
    """With so many bytes in it at once, a pipe may be full before a pause is over: some are small, as terminals are."""
    try:
        size = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except OSError:
        size = TERMINAL_BYTES
    return min(READ_BYTES, size // 4)


def _read(fd: int) -> bytes | None:
    """Available bytes; None when there are none yet, empty when every writer has closed the pipe or terminal."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:  # of a terminal that nothing else has open
            raise
        return b""
