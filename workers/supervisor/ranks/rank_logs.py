"""Reads the ranks' output from their pipes, numbers and stores it; a rank that writes faster than that waits."""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from config.redaction import Redaction
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.recording.log_lines import LogNumbering
from workers.supervisor.recording.log_store import LogStore

READ_BYTES = 1 << 16  # at once: as many lines, if they are empty
LEFT_BYTES = 2 << 20  # upper limit for the rest in a pipe, which holds less
PRESSED_SECONDS = 0.02  # pause of reading while the storage is behind
LineListener = Callable[[list[str]], None]
LAST_LINES = 50  # of a rank, shown as the stack of an unexplained error


class RankLogs:
    """One pipe per rank; all methods belong to the loop's thread."""

    def __init__(self, loop: EventLoop, store: LogStore) -> None:
        self._loop = loop
        self._store = store
        self._fds: list[int] = []
        self._open: set[int] = set()
        self._waiting: set[int] = set()  # pipes that are left unread until the storage has caught up
        self._first_rank = 0
        self._numbering = LogNumbering(0)
        self._last_lines: dict[int, deque[str]] = {}
        self._on_lines: LineListener | None = None

    def read_from(
        self,
        fds: Sequence[int],
        redaction: Redaction,
        *,
        node_rank: int = 0,
        nodes: int = 1,
        on_lines: LineListener | None = None,
    ) -> None:
        """Read the pipes of this node's ranks, in rank order; ``on_lines`` gets the lines of the first."""
        self._on_lines = on_lines
        self._fds, self._open, self._first_rank = list(fds), set(fds), node_rank * len(fds)
        self._waiting.clear()
        self._numbering = LogNumbering(len(fds), redaction=redaction, node_rank=node_rank, nodes=nodes)
        for rank, fd in enumerate(fds):
            self._last_lines[rank] = deque(maxlen=LAST_LINES)
            self._loop.watch(fd, partial(self._read, rank, fd))

    @property
    def are_closed(self) -> bool:
        """Whether every writer has closed its pipe and everything was read."""
        return not self._open

    @property
    def last_lines(self) -> Mapping[int, list[str]]:
        return {self._first_rank + rank: list(lines) for rank, lines in self._last_lines.items()}

    def close(self) -> None:
        """Store the rest of each pipe, and close it."""
        for rank, fd in enumerate(self._fds):
            left = LEFT_BYTES
            while fd in self._open and left > 0 and (data := _read(fd)):
                self._keep(rank, data)
                left -= len(data)
            self._keep(rank, flush=True)
            self._loop.forget(fd)
            os.close(fd)
        self._waiting.clear()

    def _read(self, rank: int, fd: int) -> None:
        if not self._store.has_room:
            self._wait(rank, fd)
        elif data := _read(fd):
            self._keep(rank, data)
        elif data is not None:
            self._loop.forget(fd)
            self._open.discard(fd)

    def _wait(self, rank: int, fd: int) -> None:
        """Stop reading the pipe for a moment: it fills, and the rank's next write blocks."""
        self._loop.forget(fd)
        self._waiting.add(fd)

        def again() -> None:
            if fd in self._waiting:
                self._waiting.discard(fd)
                self._loop.watch(fd, partial(self._read, rank, fd))

        self._loop.call_after(PRESSED_SECONDS, again)

    def _keep(self, rank: int, data: bytes = b"", *, flush: bool = False) -> None:
        lines = self._numbering.flush(rank) if flush else self._numbering.feed(rank, data)
        texts = [line.text for line in lines]
        self._last_lines[rank].extend(texts)
        self._store.add(lines)
        if rank == 0 and self._on_lines is not None:
            self._on_lines(texts)


def _read(fd: int) -> bytes | None:
    """Available bytes; None when there are none yet, empty when every writer has closed the pipe."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
