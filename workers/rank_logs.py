"""The output of an attempt's ranks: read from their pipes, numbered, kept."""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from config.redaction import Redaction
from workers.log_lines import LogNumbering
from workers.log_store import LogStore
from workers.main_loop import MainLoop

READ_BYTES = 1 << 18
Heed = Callable[[list[str]], None]
LAST_LINES = 50  # of a rank, shown as the stack of an error that it did not explain


class RankLogs:
    """One pipe per rank; all methods belong to the loop's thread."""

    def __init__(self, loop: MainLoop, store: LogStore) -> None:
        self._loop = loop
        self._store = store
        self._fds: list[int] = []
        self._open: set[int] = set()
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
        """Keep what is left of each rank's last line, and hang up."""
        for rank, fd in enumerate(self._fds):
            self._keep(rank, flush=True)
            self._loop.forget(fd)
            os.close(fd)

    def _read(self, rank: int, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._keep(rank, data)
        else:
            self._loop.forget(fd)
            self._open.discard(fd)

    def _keep(self, rank: int, data: bytes = b"", *, flush: bool = False) -> None:
        lines = self._numbering.flush(rank) if flush else self._numbering.feed(rank, data)
        texts = [line.text for line in lines]
        self._last_lines[rank].extend(texts)
        self._store.add(lines)
        if rank == 0 and self._heed is not None:
            self._heed(texts)
