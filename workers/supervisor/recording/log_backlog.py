"""Log lines that wait for the storage: bounded in memory; dropped lines are counted where they are missing."""

from collections import deque
from collections.abc import Iterable

from app.storage.log_blocks import LogBlock

FULL_BYTES = 32 << 20  # from here on the ranks' pipes are not read
MOST_BYTES = 64 << 20  # beyond it the oldest lines are dropped: the storage has stalled, and the ranks are not held up
BLOCK_BYTES = 300  # of a block's objects in memory, besides its text


class LogBacklog:
    """A queue of blocks with rising numbers. Not for several threads at once."""

    def __init__(self, *, full_bytes: int = FULL_BYTES, most_bytes: int = MOST_BYTES) -> None:
        self._full_bytes, self._most_bytes = full_bytes, most_bytes
        self._blocks: deque[LogBlock] = deque()
        self._cut: dict[int, tuple[int, LogBlock]] = {}  # rank → how many of its lines were dropped, and the last block
        self.bytes = self.lines = 0

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._full_bytes

    @property
    def unstored(self) -> int:
        """Number of lines that wait or were dropped without a notice yet."""
        return sum(block.stands_for for block in self._blocks) + sum(count for count, _ in self._cut.values())

    def add(self, block: LogBlock) -> None:
        self._blocks.append(block)
        self.bytes += _size(block)
        self.lines += block.count
        while self.bytes > self._most_bytes:
            self.drop([self._pop()])

    def drop(self, blocks: Iterable[LogBlock]) -> None:
        """Count blocks, older than all that wait, as dropped; the next batch has a notice in their place."""
        for block in blocks:
            count, _ = self._cut.get(block.rank, (0, block))
            self._cut[block.rank] = count + block.stands_for, block

    def take(self, most_bytes: int) -> list[LogBlock]:
        """The oldest blocks, after a notice for each rank that has the number of the last line it stands for."""
        taken = sorted((_notice(count, last) for count, last in self._cut.values()), key=_number)
        self._cut.clear()
        while self._blocks and most_bytes > 0:
            taken.append(self._pop())
            most_bytes -= _size(taken[-1])
        return taken

    def _pop(self) -> LogBlock:
        block = self._blocks.popleft()
        self.bytes -= _size(block)
        self.lines -= block.count
        return block


def _size(block: LogBlock) -> int:
    return len(block.text) + BLOCK_BYTES


def _number(block: LogBlock) -> int:
    return block.first


def _notice(count: int, last: LogBlock) -> LogBlock:
    lines = "1 line" if count == 1 else f"{count} lines"
    text = f"[trainyard] {lines} dropped here: the storage took no log lines for too long\n"
    return LogBlock(rank=last.rank, first=last.last, count=1, at=last.at, text=text.encode(), replaces=count)
