"""Reads a job's log lines, over all attempts and ranks, also while they are being written.

A chunk is named by the number of its first line, so that a line is found by names alone. Lines are numbered from 1 per
attempt over all ranks; readers return no line before all earlier ones of its node exist. Nodes do not wait for each
other, so a cursor names a line of each: resuming after it loses none.
"""

import heapq
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.storage.log_blocks import LogBlock, StoredBlock, decoded, decoded_rows
from app.storage.object_keys import attempts_key, logs_key
from app.storage.storage import Storage

# Suffix → how its content is read; earlier releases stored rows.
_FORMATS = {"log": decoded, "jsonl": decoded_rows}
_CHUNK_NAME = re.compile(rf"rank-(\d+)-(\d{{6,}})\.({'|'.join(_FORMATS)})")

# An attempt, and the number of the last line that was read: one for all nodes, or one for each.
Cursor = tuple[int, ...]
START: Cursor = (0, 0)


Ranks = int | range | None  # of which lines are read: those of one rank, of several, or of all


@dataclass(frozen=True, order=True)
class LogLine:
    attempt: int
    n: int
    at: str
    rank: int
    line: str

    @property
    def cursor(self) -> tuple[int, int]:
        """The cursor to resume reading after this line of its rank."""
        return self.attempt, self.n


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLines:
    """Lines of one rank that were read together, numbered ``first``, ``first + step``, …

    ``lost``: how many numbers before the first are no line, or one of another node, which readers do not wait for.
    ``before``: the last number of each node that was read before; empty where one number stands for all.
    """

    attempt: int
    rank: int
    at: str
    first: int
    step: int
    lost: int
    texts: list[str]
    before: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return self.first + (len(self.texts) - 1) * self.step

    @property
    def node(self) -> int:
        """The node that wrote them: nodes number their lines in turn."""
        return (self.first - 1) % self.step

    @property
    def cursor(self) -> Cursor:
        """The cursor to resume reading after these lines."""
        if not self.before:
            return self.attempt, self.last
        return self.attempt, *self.before[: self.node], self.last, *self.before[self.node + 1 :]

    def __iter__(self) -> Iterator[LogLine]:
        for index, text in enumerate(self.texts):
            yield LogLine(self.attempt, self.first + index * self.step, self.at, self.rank, text)

    def head(self, count: int) -> "LogLines":
        return replace(self, texts=self.texts[:count])

    def without(self, count: int) -> "LogLines":
        """All but the first ``count`` lines."""
        if count == 0:
            return self
        return replace(self, first=self.first + count * self.step, lost=self.step - 1, texts=self.texts[count:])

    def number_up_to(self, number: int) -> int:
        """How many of the lines have this number or a lower one."""
        return min(len(self.texts), max(0, (number - self.first) // self.step + 1))


class _Chunk(NamedTuple):
    first: int
    key: str
    suffix: str


class _Place(NamedTuple):
    """Where to continue in a chunk after the line ``number``."""

    key: str
    number: int
    offset: int


class LogReader:
    """Reads the lines of a job. A reader that follows a log is kept: it continues where it has stopped in a chunk."""

    def __init__(self, storage: Storage, job_id: str) -> None:
        self._storage = storage
        self._job_id = job_id
        self._places: dict[tuple[int, int], _Place] = {}  # by attempt and rank

    def read(self, after: Cursor = START, *, rank: Ranks = None, limit: int = 1000, live: bool = True) -> list[LogLine]:
        """The lines of ``read_blocks``, one by one."""
        return [line for lines in self.read_blocks(after, rank=rank, limit=limit, live=live) for line in lines]

    def read_blocks(
        self,
        after: Cursor = START,
        *,
        rank: Ranks = None,
        limit: int = 1000,
        enough: float = math.inf,
        live: bool = True,
    ) -> list[LogLines]:
        """The next lines after the cursor, at most ``limit``; empty when there are none yet.

        ``enough``: stop after the block with which they have so many characters.
        ``live``: the newest attempt may still be written, so stop at gaps; otherwise gaps are skipped.
        """
        found: list[LogLines] = []
        for lines in self.blocks(after, rank=rank, live=live):
            found.append(lines.head(limit))
            limit -= len(found[-1].texts)
            enough -= sum(map(len, found[-1].texts))
            if limit <= 0 or enough <= 0:
                break
        return found

    def blocks(
        self, after: Cursor = START, *, rank: Ranks = None, attempt: int | None = None, live: bool = True
    ) -> Iterator[LogLines]:
        """All lines after the cursor as they are read, of one attempt or of all; ``live`` as of ``read_blocks``."""
        attempts = self.attempts()
        for each in attempts:
            if each >= after[0] and attempt in (None, each):
                seen = after[1:] if each == after[0] else START[1:]
                yield from self._attempt_lines(each, seen, rank, live=live and each == attempts[-1])

    def tail(self, count: int, *, rank: Ranks = None, live: bool = True) -> list[LogLine]:
        """The last ``count`` lines, oldest first."""
        return [line for lines in self.tail_blocks(count, rank=rank, live=live) for line in lines]

    def tail_blocks(self, count: int, *, rank: Ranks = None, live: bool = True) -> list[LogLines]:
        """The last ``count`` lines, oldest first, with cursors as of ``read_blocks``."""
        attempts = self.attempts()
        found: list[LogLines] = []
        for attempt in reversed(attempts):
            wanted = count - sum(len(lines.texts) for lines in found)
            if wanted <= 0:
                break
            last = _last(_tracked(_merged(self._last_lines(attempt, wanted, rank)), START[1:]), wanted)
            if rank is None and live and attempt == attempts[-1] and last:
                last = list(_tracked(_gapless(last, _before_first(last)), last[0].before or START[1:]))
            found = [*last, *found]
        return found

    def attempts(self) -> list[int]:
        """The attempts that have written lines."""
        names = self._storage.names(attempts_key(self._job_id))
        return sorted(int(name) for name in names if name.isdecimal())

    def ranks(self, attempt: int) -> list[int]:
        """The ranks that have written lines in an attempt."""
        return list(self._chunks(attempt))

    def newest(self, attempt: int, *, rank: Ranks = None) -> int:
        """The highest number of a stored line of an attempt, 0 without one. Lower ones may be missing still."""
        return max((lines.last for of_rank in self._last_lines(attempt, 1, rank) for lines in of_rank), default=0)

    def _attempt_lines(self, attempt: int, seen: tuple[int, ...], rank: Ranks, *, live: bool) -> Iterator[LogLines]:
        # Lines of one rank are in order; only across ranks may a later line appear before an earlier one.
        lines = _merged(
            self._lines_after(attempt, which, chunks, seen[(chunks[0].first - 1) % len(seen)])
            for which, chunks in self._chunks(attempt).items()
            if _is_wanted(which, rank)
        )
        return _tracked(_gapless(lines, seen) if live and rank is None else lines, seen)

    def _lines_after(self, attempt: int, rank: int, chunks: list[_Chunk], seen: int) -> Iterator[LogLines]:
        for chunk in chunks[max(0, bisect_right(chunks, seen + 1, key=_first) - 1) :]:
            place = self._places.get((attempt, rank), _Place("", 0, 0))
            offset = place.offset if place.key == chunk.key and place.number <= seen else 0
            for stored in self._blocks(chunk, rank, offset):
                if stored.block.last <= seen:
                    self._places[attempt, rank] = _Place(chunk.key, stored.block.last, offset + stored.end)
                else:
                    lines = _opened(attempt, stored)
                    yield lines.without(lines.number_up_to(seen))

    def _last_lines(self, attempt: int, count: int, rank: Ranks) -> Iterator[Iterator[LogLines]]:
        for which, chunks in self._chunks(attempt).items():
            if _is_wanted(which, rank):
                blocks: list[StoredBlock] = []
                for chunk in reversed(chunks):
                    blocks = [*self._blocks(chunk, which), *blocks]
                    if sum(stored.block.count for stored in blocks) >= count:
                        break
                yield iter(_last((_opened(attempt, stored) for stored in _last_blocks(blocks, count)), count))

    def _chunks(self, attempt: int) -> dict[int, list[_Chunk]]:
        """Rank → its chunks, in order."""
        chunks: dict[int, list[_Chunk]] = {}
        folder = logs_key(self._job_id, attempt)
        for name in self._storage.names(folder):
            if match := _CHUNK_NAME.fullmatch(name):
                chunks.setdefault(int(match[1]), []).append(_Chunk(int(match[2]), f"{folder}/{name}", match[3]))
        return {rank: sorted(of_rank) for rank, of_rank in sorted(chunks.items())}

    def _blocks(self, chunk: _Chunk, rank: int, offset: int = 0) -> Iterator[StoredBlock]:
        return _FORMATS[chunk.suffix](self._storage.read(chunk.key, offset), rank)


def _first(chunk: _Chunk) -> int:
    return chunk.first


def _is_wanted(rank: int, wanted: Ranks) -> bool:
    return wanted is None or (rank in wanted if isinstance(wanted, range) else rank == wanted)


def _opened(attempt: int, stored: StoredBlock) -> LogLines:
    block: LogBlock = stored.block
    return LogLines(
        attempt=attempt,
        rank=block.rank,
        at=block.at,
        first=block.first,
        step=block.step,
        lost=stored.lost,
        texts=block.lines(),
    )


def _merged(streams: Iterable[Iterator[LogLines]]) -> Iterator[LogLines]:
    """The lines of all in the order of their numbers; blocks of nodes that wrote at the same time are divided."""
    sources = list(streams)
    heap: list[tuple[int, int, LogLines]] = []

    def push(index: int, lines: LogLines | None) -> None:
        if lines is not None:
            heapq.heappush(heap, (lines.first, index, lines))

    for index, source in enumerate(sources):
        push(index, next(source, None))
    while heap:
        _, index, lines = heapq.heappop(heap)
        count = max(1, lines.number_up_to(heap[0][0] - 1)) if heap else len(lines.texts)
        if count == len(lines.texts):
            yield lines
            push(index, next(sources[index], None))
        else:
            yield lines.head(count)
            push(index, lines.without(count))


class _Read:
    """The number of the last line of each node that was read."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = list(numbers)

    def of_nodes(self, count: int) -> tuple[int, ...]:
        if len(self._numbers) != count:  # a number that stands for all nodes
            self._numbers = [max(self._numbers)] * count
        return tuple(self._numbers)

    def add(self, lines: LogLines) -> None:
        self.of_nodes(lines.step)
        self._numbers[lines.node] = lines.last


def _gapless(merged: Iterable[LogLines], seen: Iterable[int]) -> Iterator[LogLines]:
    """Of each node the lines up to one whose predecessor, of another rank, is not stored yet."""
    read, stopped = _Read(seen), set[int]()
    for lines in merged:
        if lines.first - lines.lost > read.of_nodes(lines.step)[lines.node] + 1:
            stopped.add(lines.node)
            if len(stopped) == lines.step:
                return
        if lines.node not in stopped:
            read.add(lines)
            yield lines


def _tracked(merged: Iterable[LogLines], seen: Iterable[int]) -> Iterator[LogLines]:
    """The lines with what was read of all nodes before them."""
    read = _Read(seen)
    for lines in merged:
        yield lines if lines.step == 1 else replace(lines, before=read.of_nodes(lines.step))
        read.add(lines)


def _before_first(found: list[LogLines]) -> list[int]:
    """For each node the number before its first of these lines."""
    firsts = {lines.node: lines.first - lines.lost - 1 for lines in reversed(found)}
    return [firsts.get(node, 0) for node in range(found[0].step)]


def _last_blocks(blocks: list[StoredBlock], count: int) -> list[StoredBlock]:
    """The last blocks that have ``count`` lines together."""
    start = len(blocks)
    while start > 0 and count > 0:
        start -= 1
        count -= blocks[start].block.count
    return blocks[start:]


def _last(parts: Iterable[LogLines], count: int) -> list[LogLines]:
    """The last ``count`` lines."""
    found = list(parts)
    surplus = sum(len(lines.texts) for lines in found) - count
    while surplus > 0:
        lines = found.pop(0)
        if len(lines.texts) > surplus:
            found.insert(0, lines.without(surplus))
        surplus -= len(lines.texts)
    return found
