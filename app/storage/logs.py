"""A job's log lines in the storage: append-only chunks per attempt and rank.

A chunk is named by the number of its first line, so that a line is found by names alone. Lines are numbered from 1 per
attempt over all ranks; readers return no line before all earlier ones exist, so resuming after a line loses none.
"""

import heapq
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app.storage.keys import attempts_key, logs_key
from app.storage.storage import Storage

CHUNK_BYTES = 256 * 1024
_CHUNK_NAME = re.compile(r"rank-(\d+)-(\d{6,})\.jsonl")

START = (0, 0)  # a cursor before the first line


@dataclass(frozen=True, order=True)
class LogLine:
    attempt: int
    n: int
    at: str
    rank: int
    line: str

    @property
    def cursor(self) -> tuple[int, int]:
        """The cursor to resume reading after this line."""
        return self.attempt, self.n


@dataclass
class _Chunk:
    key: str
    written: bytearray = field(default_factory=bytearray)


class LogWriter:
    """The only writer of an attempt's log lines, in its supervisor; not thread-safe."""

    def __init__(self, storage: Storage, job_id: str, attempt: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._storage = storage
        self._folder = logs_key(job_id, attempt)
        self._chunk_bytes = chunk_bytes
        self._chunks: dict[int, _Chunk] = {}
        self._newest: dict[int, int] = {}  # rank → number of its newest written line
        self._batch_end = 0

    def append(self, lines: Sequence[tuple[int, str, int, str]]) -> None:
        """Store lines (n, at, rank, text) in order of n. On TransientStorageError, call again with the same lines.

        A skipped number is a lost line; the next line records the loss, so that readers do not wait for it.
        """
        fresh: dict[int, list[tuple[int, bytes]]] = {}
        before = self._batch_end
        for n, at, rank, text in lines:
            lost, before = n - before - 1, n
            if n > self._newest.get(rank, 0):
                fresh.setdefault(rank, []).append((n, _record(n, at, rank, text, lost)))
        for rank, records in fresh.items():
            while records:
                self._grow(rank, records)
        self._batch_end = max(before, self._batch_end)

    def _grow(self, rank: int, records: list[tuple[int, bytes]]) -> None:
        """Write as many records as fit into the chunk and remove them from the list."""
        chunk = self._chunks.get(rank)
        if chunk is None or len(chunk.written) >= self._chunk_bytes:
            chunk = _Chunk(f"{self._folder}/rank-{rank}-{records[0][0]:06d}.jsonl")
        taken, tail = 0, bytearray()
        while taken < len(records) and len(chunk.written) + len(tail) < self._chunk_bytes:
            tail += records[taken][1]
            taken += 1
        whole = chunk.written + tail
        self._storage.grow(chunk.key, offset=len(chunk.written), tail=bytes(tail), whole=bytes(whole))
        chunk.written = whole
        self._chunks[rank] = chunk
        self._newest[rank] = records[taken - 1][0]
        del records[:taken]


class LogReader:
    """Reads the lines of a job over all attempts, also while they are being written."""

    def __init__(self, storage: Storage, job_id: str) -> None:
        self._storage = storage
        self._job_id = job_id

    def read(
        self, after: tuple[int, int] = START, *, rank: int | None = None, limit: int = 1000, live: bool = True
    ) -> list[LogLine]:
        """The next lines after the cursor (attempt, n), at most ``limit``; empty when there are none yet.

        ``live``: the newest attempt may still be written, so stop at gaps; otherwise gaps are skipped.
        """
        attempts = [attempt for attempt in self._attempts() if attempt >= after[0]]
        found: list[LogLine] = []
        for attempt in attempts:
            seen = after[1] if attempt == after[0] else 0
            lines: Iterator[LogLine] = self._attempt_lines(attempt, seen, rank, live=live and attempt == attempts[-1])
            found += islice(lines, limit - len(found))
            if len(found) >= limit:
                break
        return found

    def tail(self, count: int, *, rank: int | None = None, live: bool = True) -> list[LogLine]:
        """The last ``count`` lines, oldest first."""
        attempts = self._attempts()
        found: list[LogLine] = []
        for attempt in reversed(attempts):
            wanted = count - len(found)
            if wanted <= 0:
                break
            records = self._last_records(attempt, wanted, rank)
            gapless = rank is None and live and attempt == attempts[-1]
            start = records[0].n - records[0].lost - 1 if records else 0
            found = [*_lines(records, attempt, start, gapless=gapless), *found]
        return found

    def _attempts(self) -> list[int]:
        names = self._storage.names(attempts_key(self._job_id))
        return sorted(int(name) for name in names if name.isdecimal())

    def _attempt_lines(self, attempt: int, seen: int, rank: int | None, *, live: bool) -> Iterator[LogLine]:
        ranks = [
            self._records_after(attempt, which, chunks, seen)
            for which, chunks in self._chunks(attempt).items()
            if rank in (None, which)
        ]
        # Lines of one rank are in order; only across ranks may a later line appear before an earlier one.
        return _lines(heapq.merge(*ranks), attempt, seen, gapless=live and rank is None)

    def _records_after(self, attempt: int, rank: int, chunks: list[int], seen: int) -> Iterator["_Record"]:
        for first in chunks[max(0, bisect_right(chunks, seen + 1) - 1) :]:
            rows = self._rows(attempt, rank, first)
            for row in rows[bisect_right(rows, seen, key=_number) :]:
                yield _parse(row)

    def _last_records(self, attempt: int, count: int, rank: int | None) -> list["_Record"]:
        per_rank = []
        for which, chunks in self._chunks(attempt).items():
            if rank in (None, which):
                rows: list[bytes] = []
                for first in reversed(chunks):
                    rows = self._rows(attempt, which, first) + rows
                    if len(rows) >= count:
                        break
                per_rank.append([_parse(row) for row in rows[-count:]])
        return list(heapq.merge(*per_rank))[-count:]

    def _chunks(self, attempt: int) -> dict[int, list[int]]:
        """Rank → numbers of the first lines of its chunks."""
        chunks: dict[int, list[int]] = {}
        for name in self._storage.names(logs_key(self._job_id, attempt)):
            match = _CHUNK_NAME.fullmatch(name)
            if match:
                chunks.setdefault(int(match[1]), []).append(int(match[2]))
        return {rank: sorted(firsts) for rank, firsts in sorted(chunks.items())}

    def _rows(self, attempt: int, rank: int, first: int) -> list[bytes]:
        data = self._storage.read(f"{logs_key(self._job_id, attempt)}/rank-{rank}-{first:06d}.jsonl")
        return data.split(b"\n")[:-1]  # the rest after the last newline is still being written


@dataclass(frozen=True, order=True)
class _Record:
    n: int
    at: str
    rank: int
    line: str
    lost: int


def _record(n: int, at: str, rank: int, text: str, lost: int) -> bytes:
    record = {"n": n, "at": at, "rank": rank, "line": text}
    if lost > 0:
        record["lost"] = lost
    # ASCII: lone surrogates in a job's output must not break the log.
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def _parse(row: bytes) -> _Record:
    record = json.loads(row)
    return _Record(record["n"], record["at"], record["rank"], record["line"], record.get("lost", 0))


def _number(row: bytes) -> int:
    return int(json.loads(row)["n"])


def _lines(records: Iterable[_Record], attempt: int, seen: int, *, gapless: bool) -> Iterator[LogLine]:
    for record in records:
        if gapless and record.n - record.lost > seen + 1:
            return  # an earlier line of another rank is still missing
        seen = record.n
        yield LogLine(attempt, record.n, record.at, record.rank, record.line)
