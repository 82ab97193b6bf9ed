"""The output of an attempt's ranks: read from their pipes, numbered, stored; a rank that writes faster has to wait."""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from config.redaction import Redaction
from workers.supervisor.ranks.event_loop import MainLoop
from workers.supervisor.recording.log_lines import LogNumbering
from workers.supervisor.recording.log_store import LogStore

READ_BYTES = 1 << 16  # at once: as many lines, if they are empty
LEFT_BYTES = 2 << 20  # read at most of what a rank left in its pipe, which holds less
PRESSED_SECONDS = 0.02  # until the pipes are looked at again, when the storage is behind
Heed = Callable[[list[str]], None]
LAST_LINES = 50  # of a rank, shown as the stack of an error that it did not explain


class RankLogs:
    """One pipe per rank; all methods belong to the loop's thread."""

    def __init__(self, loop: MainLoop, store: LogStore) -> None:
        self._loop = loop
        self._store = store
        self._fds: list[int] = []
        self._open: set[int] = set()
        self._waiting: set[int] = set()  # pipes that are left unread until the storage has caught up
        self._first_rank = 0
        self._numbering = LogNumbering(0)
        self._last_lines: dict[int, deque[str]] = {}
        self._heed: Heed | None = None

    def read_from(
        self, fds: Sequence[int], redaction: Redaction, *, node_rank: int = 0, nodes: int = 1, heed: Heed | None = None
    ) -> None:
        """Listen at the pipes of this node's ranks, in their order; ``heed`` gets the first one's lines."""
        self._heed = heed
        self._fds, self._open, self._first_rank = list(fds), set(fds), node_rank * len(fds)
        self._waiting.clear()
        self._numbering = LogNumbering(len(fds), redaction=redaction, node_rank=node_rank, nodes=nodes)
        for rank, fd in enumerate(fds):
            self._last_lines[rank] = deque(maxlen=LAST_LINES)
            self._loop.watch(fd, partial(self._read, rank, fd))

    @property
    def are_closed(self) -> bool:
        """Whether every writer has hung up, and everything was read."""
        return not self._open

    @property
    def last_lines(self) -> Mapping[int, list[str]]:
        return {self._first_rank + rank: list(lines) for rank, lines in self._last_lines.items()}

    def close(self) -> None:
        """Store what is left in the pipes and of each rank's last line, and hang up."""
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
        """Leave the pipe unread for a moment: it fills, and the rank's next write waits."""
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
        if rank == 0 and self._heed is not None:
            self._heed(texts)


def _read(fd: int) -> bytes | None:
    """What there is; None when there is nothing yet, empty when every writer has hung up."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
