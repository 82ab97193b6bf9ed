"""Log lines that wait for the storage: bounded in memory; dropped lines are counted where they are missing."""

from collections import deque
from collections.abc import Iterable

from workers.supervisor.recording.log_lines import LogLine

FULL_BYTES = 32 << 20  # from here on the ranks' pipes are not read
MOST_BYTES = 64 << 20  # beyond it the oldest lines are dropped: the storage has stalled, and the ranks are not held up
LINE_BYTES = 200  # of a line's objects in memory, besides its text


class LogBacklog:
    """A queue of lines with rising numbers. Not for several threads at once."""

    def __init__(self, *, full_bytes: int = FULL_BYTES, most_bytes: int = MOST_BYTES) -> None:
        self._full_bytes, self._most_bytes = full_bytes, most_bytes
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._cut: dict[int, tuple[int, LogLine]] = {}  # rank → how many of its lines were dropped, and the last one

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._full_bytes

    @property
    def unstored(self) -> int:
        """Number of lines that wait or were dropped without a notice yet."""
        return sum(line.stands_for for line in self._lines) + sum(count for count, _ in self._cut.values())

    def add(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self._lines.append(line)
            self._bytes += _size(line)
        while self._bytes > self._most_bytes:
            self.drop([self._pop()])

    def drop(self, lines: Iterable[LogLine]) -> None:
        """Count lines, older than all that wait, as dropped; the next batch has a notice in their place."""
        for line in lines:
            count, _ = self._cut.get(line.rank, (0, line))
            self._cut[line.rank] = count + line.stands_for, line

    def take(self, most: int) -> list[LogLine]:
        """The oldest lines, after a notice for each rank that has the number of the last line it stands for."""
        notices = [_notice(count, last) for count, last in self._cut.values()]
        self._cut.clear()
        notices.sort(key=lambda line: line.number)
        return notices + [self._pop() for _ in range(min(most, len(self._lines)))]

    def _pop(self) -> LogLine:
        line = self._lines.popleft()
        self._bytes -= _size(line)
        return line


def _size(line: LogLine) -> int:
    return len(line.text) + LINE_BYTES


def _notice(count: int, last: LogLine) -> LogLine:
    lines = "1 line" if count == 1 else f"{count} lines"
    text = f"[trainyard] {lines} dropped here: the storage took no log lines for too long"
    return LogLine(number=last.number, rank=last.rank, at=last.at, text=text, stands_for=count)
