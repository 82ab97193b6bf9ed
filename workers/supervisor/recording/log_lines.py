"""Splits raw output of ranks into numbered lines: cut when too long, dropped with a notice when too many."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from config.redaction import Redaction

MAX_LINE_BYTES = 16 * 1024
CUT_MARK = " … [trainyard: line cut at 16 KiB]"
# Average rate of one rank, plus a burst: far above any training's, far below a flood.
BYTES_PER_SECOND = 4 << 20
BURST_BYTES = 16 << 20
# A flood often ends with the interesting part: a traceback.
LAST_LINES_KEPT = 100


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of one rank; ``number`` counts within the attempt over all its ranks.

    ``stands_for``: lines of the rank that are not there without it; of a notice those that were dropped.
    """

    number: int
    rank: int
    at: datetime
    text: str
    stands_for: int = 1


class LineSplitter:
    """Cuts a rank's bytes into lines of bounded length; an incomplete line waits for the rest."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._cut = False  # the rest of the current line is dropped
        self._returned = False  # the last byte was a carriage return

    def feed(self, data: bytes) -> list[str]:
        *lines, rest = data.split(b"\n")
        done = []
        for line in lines:
            self._add(line)
            done.append(self._complete())
        self._add(rest)
        return done

    def flush(self) -> list[str]:
        """The last line when it had no end."""
        return [self._complete()] if self._rest else []

    def _add(self, piece: bytes) -> None:
        """A progress bar redraws its line; keep what a terminal would show at the end."""
        drawn = piece.rstrip(b"\r")
        if drawn:
            _, redrawn, last = drawn.rpartition(b"\r")
            if redrawn or self._returned:
                self._rest.clear()
                self._cut = False
            room = MAX_LINE_BYTES - len(self._rest)
            self._rest += last[:room]
            self._cut = self._cut or len(last) > room
        if piece:
            self._returned = drawn != piece

    def _complete(self) -> str:
        text = self._rest.decode("utf-8", "replace").replace("\0", "�")
        mark = CUT_MARK if self._cut else ""
        self._rest.clear()
        self._cut = self._returned = False
        return text + mark


class FloodGate:
    """A token bucket of bytes: decides whether a line may pass, and counts those that may not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes = float(BURST_BYTES)
        self._at = clock()
        self._dropped = 0

    def admit(self, size: int) -> bool:
        now = self._clock()
        self._bytes = min(BURST_BYTES, self._bytes + (now - self._at) * BYTES_PER_SECOND)
        self._at = now
        # After a drop the bucket must fill a little first: one notice per pause, not one per line.
        if self._bytes < size + (BURST_BYTES // 4 if self._dropped else 0):
            self._dropped += 1
            return False
        self._bytes -= size
        return True

    def take_dropped(self) -> int:
        """How many lines were held back since the last one that passed."""
        dropped, self._dropped = self._dropped, 0
        return dropped


class LogNumbering:
    """Splits the output of an attempt's ranks on one node, counted from 0, into numbered lines.

    Without the secrets in them.
    """

    def __init__(
        self,
        ranks: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        redaction: Redaction | None = None,
        node_rank: int = 0,
        nodes: int = 1,
    ) -> None:
        self._first_rank, self._nodes = node_rank * ranks, nodes
        self._redaction = redaction or Redaction()
        self._splitters = [LineSplitter() for _ in range(ranks)]
        self._gates = [FloodGate(clock) for _ in range(ranks)]
        self._held_back: list[deque[str]] = [deque(maxlen=LAST_LINES_KEPT) for _ in range(ranks)]
        # Each node has numbers of its own, in turn with the others, so that no two lines have the same.
        self._last = node_rank + 1 - nodes

    def feed(self, rank: int, data: bytes) -> list[LogLine]:
        return self._number(rank, self._splitters[rank].feed(data))

    def flush(self, rank: int) -> list[LogLine]:
        """The rest of a rank whose output ended: the notice of dropped lines, and the last of those."""
        lines = self._number(rank, self._splitters[rank].flush())
        last, at = list(self._held_back[rank]), datetime.now(UTC)
        return lines + self._notice(rank, at, kept=len(last)) + [self._line(rank, text, at) for text in last]

    def _number(self, rank: int, texts: list[str]) -> list[LogLine]:
        lines: list[LogLine] = []
        at = datetime.now(UTC)
        for text in texts:
            if not self._gates[rank].admit(len(text) + 1):
                self._held_back[rank].append(text)
                continue
            if self._held_back[rank]:
                lines += self._notice(rank, at)
                self._held_back[rank].clear()
            lines.append(self._line(rank, text, at))
        return lines

    def _line(self, rank: int, text: str, at: datetime) -> LogLine:
        self._last += self._nodes
        return LogLine(number=self._last, rank=self._first_rank + rank, at=at, text=self._shown(text))

    def _shown(self, text: str) -> str:
        if not text.endswith(CUT_MARK):
            return self._redaction(text)
        return self._redaction.redact_truncated(text.removesuffix(CUT_MARK)) + CUT_MARK

    def _notice(self, rank: int, at: datetime, *, kept: int = 0) -> list[LogLine]:
        dropped = self._gates[rank].take_dropped() - kept
        if dropped <= 0:
            return []
        text = f"[trainyard] {dropped} lines dropped: more than {BYTES_PER_SECOND >> 20} MiB per second"
        return [self._line(rank, text, at)]
