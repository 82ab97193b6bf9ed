"""Makes numbered blocks of the output of an attempt's ranks: without secrets, and bounded in what they fill."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from app.storage.log_blocks import ENCODING, ERRORS, LogBlock
from config.redaction import Redaction
from workers.supervisor.recording.flood_gate import BURST_BYTES, BYTES_PER_SECOND, FloodGate
from workers.supervisor.recording.log_lines import CUT_MARK, LineSplitter

# A flood often ends with the interesting part: a traceback.
LAST_LINES_KEPT = 100


class LogNumbering:
    """Numbers the lines of an attempt's ranks on one node, counted from 0, in the order in which they were read."""

    def __init__(
        self,
        ranks: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        redaction: Redaction | None = None,
        node_rank: int = 0,
        nodes: int = 1,
        numbers: Sequence[int] | None = None,
        burst_bytes: int = BURST_BYTES,
    ) -> None:
        """``numbers``: of these ranks among all of the attempt, where they do not follow each other."""
        self._numbers, self._nodes = numbers or range(node_rank * ranks, (node_rank + 1) * ranks), nodes
        self._redaction = redaction or Redaction()
        self._splitters = [LineSplitter() for _ in range(ranks)]
        self._gates = [FloodGate(clock, burst_bytes=burst_bytes) for _ in range(ranks)]
        self._held_back: list[deque[str]] = [deque(maxlen=LAST_LINES_KEPT) for _ in range(ranks)]
        # Each node has numbers of its own, in turn with the others, so that no two lines have the same.
        self._last = node_rank + 1 - nodes

    def feed(self, rank: int, data: bytes) -> LogBlock | None:
        """The lines that the data completes, if any."""
        text = self._splitters[rank].feed_ordinary(data)
        if text is None:
            lines = map(self._shown, self._splitters[rank].feed(data))
            text = "".join(f"{line}\n" for line in lines)
        else:
            text = self._redaction.lines(text)
        return self._block(rank, self._admitted(rank, text))

    def flush(self, rank: int) -> LogBlock | None:
        """The rest of a rank whose output ended: the notice of dropped lines, and the last of those."""
        rest = "".join(f"{self._shown(line)}\n" for line in self._splitters[rank].flush())
        text = self._admitted(rank, rest)
        last = "".join(f"{line}\n" for line in self._held_back[rank])
        notice = self._notice(rank, kept=len(self._held_back[rank]))
        self._held_back[rank].clear()
        return self._block(rank, text + notice + last)

    def _block(self, rank: int, text: str) -> LogBlock | None:
        if not text:
            return None
        first, count = self._last + self._nodes, text.count("\n")
        self._last += count * self._nodes
        return LogBlock(
            rank=self._numbers[rank],
            first=first,
            count=count,
            at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            text=text.encode(ENCODING, ERRORS),
            step=self._nodes,
        )

    def _shown(self, line: str) -> str:
        if not line.endswith(CUT_MARK):
            return self._redaction(line)
        return self._redaction.redact_truncated(line.removesuffix(CUT_MARK)) + CUT_MARK

    def _admitted(self, rank: int, text: str) -> str:
        """The lines that may pass, with a notice where others were dropped before them."""
        if not text or self._gates[rank].admit_all(_size(text)):
            return text and self._after_pause(rank, text)
        passed = []
        for line in text.split("\n")[:-1]:
            if self._gates[rank].admit(_size(line) + 1):
                passed.append(self._after_pause(rank, f"{line}\n"))
            else:
                self._held_back[rank].append(line)
        return "".join(passed)

    def _after_pause(self, rank: int, text: str) -> str:
        self._held_back[rank].clear()
        return self._notice(rank) + text

    def _notice(self, rank: int, *, kept: int = 0) -> str:
        dropped = self._gates[rank].take_dropped() - kept
        if dropped <= 0:
            return ""
        burst, rate = BURST_BYTES >> 30, BYTES_PER_SECOND >> 20
        lines = "1 line" if dropped == 1 else f"{dropped} lines"
        return f"[trainyard] {lines} dropped here: more than {burst} GiB, and {rate} MiB per second since\n"


def _size(text: str) -> int:
    return len(text.encode(ENCODING, ERRORS))
