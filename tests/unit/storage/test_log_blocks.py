"""Whatever blocks are stored, and whenever a write fails: readers get each line once, in order, from every cursor."""

import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import TransientStorageError
from app.storage.log_blocks import LogBlock
from app.storage.log_writer import LogWriter
from app.storage.logs import START, Cursor, LogLines, LogReader
from app.storage.object_keys import logs_key
from app.storage.storage import Storage
from tests.builders.log_blocks import block

JOB = "job-1"
Row = tuple[int, int, int, str]  # attempt, number, rank, text
# A text per line: whatever Unicode there is but a newline.
TEXTS = st.text(st.characters(exclude_characters="\n", codec=None), max_size=8)
# (rank, texts) of each block of a node, in the order of its numbers.
NODES = st.lists(st.tuples(st.integers(0, 2), st.lists(TEXTS, min_size=1, max_size=5)), max_size=8)


class FailingStorage(Storage):
    """Fails at the given writes, after writing a part of the tail."""

    def __init__(self, failures: set[int], part: float) -> None:
        super().__init__(f"memory://{uuid.uuid4().hex}")
        self._failures, self._part, self._writes = failures, part, count()

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        if next(self._writes) in self._failures:
            written = int(len(tail) * self._part)
            super().grow(key, offset=offset, tail=tail[:written], whole=whole[: offset + written])
            raise TransientStorageError("away")
        super().grow(key, offset=offset, tail=tail, whole=whole)


def numbered(node: list[tuple[int, list[str]]], node_rank: int, nodes: int) -> list[LogBlock]:
    blocks, number = [], node_rank + 1
    for rank, texts in node:
        blocks.append(block(number, *texts, rank=3 * node_rank + rank, step=nodes))
        number += len(texts) * nodes
    return blocks


def stored(storage: Storage, attempt: int, blocks: list[LogBlock], *, most: int) -> Iterator[None]:
    """Batches of up to ``most`` blocks, each given again until it is stored; comes after every try."""
    writer = LogWriter(storage, JOB, attempt, chunk_bytes=300)
    for first in range(0, len(blocks), most):
        is_stored = False
        while not is_stored:
            with suppress(TransientStorageError):
                writer.append(blocks[first : first + most])
                is_stored = True
            yield


def model(attempt: int, blocks: list[LogBlock]) -> list[Row]:
    """The lines in the order of their numbers."""
    rows = [
        (attempt, each.first + index * each.step, each.rank, text)
        for each in blocks
        for index, text in enumerate(each.lines())
    ]
    return sorted(rows)


def read_on(storage: Storage, after: Cursor, limit: int, rank: int | None = None) -> list[Row]:
    """All lines after the cursor, read on by one reader."""
    return Follower(storage, limit, after=after, rank=rank).read_on()


class Follower:
    """Reads on after the lines that it has read."""

    def __init__(self, storage: Storage, limit: int, *, after: Cursor = START, rank: int | None = None) -> None:
        self._reader, self._limit, self._after, self._rank = LogReader(storage, JOB), limit, after, rank

    def read_on(self) -> list[Row]:
        found = list[Row]()
        while blocks := self._reader.read_blocks(self._after, rank=self._rank, limit=self._limit):
            assert sum(len(lines.texts) for lines in blocks) <= self._limit
            found += rows(blocks)
            self._after = blocks[-1].cursor
        return found


def rows(blocks: list[LogLines]) -> list[Row]:
    return [(line.attempt, line.n, line.rank, line.line) for lines in blocks for line in lines]


@pytest.mark.long
@given(NODES, NODES, st.integers(1, 2), st.integers(1, 4), st.sets(st.integers(0, 12)), st.floats(0, 1), st.data())
def test_blocks_are_read_back_once_and_in_order_from_every_cursor(
    first: list[tuple[int, list[str]]],
    second: list[tuple[int, list[str]]],
    nodes: int,
    most: int,
    failures: set[int],
    part: float,
    data: st.DataObject,
) -> None:
    storage, expected = FailingStorage(failures, part), list[Row]()
    for attempt in (1, 2):
        written = [numbered(node, rank, nodes) for rank, node in enumerate([first, second][:nodes])]
        for blocks in written:
            deque(stored(storage, attempt, blocks, most=most), maxlen=0)
        expected += model(attempt, [each for blocks in written for each in blocks])

    limit = data.draw(st.integers(1, 9))
    rank = data.draw(st.none() | st.integers(0, 5))
    after = data.draw(st.sampled_from([START, *(row[:2] for row in expected)]))
    of_rank = [row for row in expected if rank in (None, row[2])]

    assert read_on(storage, after, limit, rank) == [row for row in of_rank if row[:2] > after]
    tail = LogReader(storage, JOB).tail(limit, rank=rank)
    assert [(line.attempt, line.n, line.rank, line.line) for line in tail] == of_rank[-limit:]


@pytest.mark.long
@given(NODES, NODES, st.integers(1, 4), st.sets(st.integers(0, 12)), st.floats(0, 1), st.data())
def test_follower_gets_each_line_once_whichever_node_stores_its_lines_first(
    first: list[tuple[int, list[str]]],
    second: list[tuple[int, list[str]]],
    most: int,
    failures: set[int],
    part: float,
    data: st.DataObject,
) -> None:
    storage, limit = FailingStorage(failures, part), data.draw(st.integers(1, 9))
    written = [numbered(node, rank, 2) for rank, node in enumerate((first, second))]
    writing = [stored(storage, 1, blocks, most=most) for blocks in written]
    follower, found = Follower(storage, limit), list[Row]()
    while writing:
        node = data.draw(st.sampled_from(writing))
        if next(node, writing) is writing:
            writing.remove(node)
        found += follower.read_on()

    assert sorted(found) == model(1, [each for blocks in written for each in blocks])
    for of_node in ({0, 1, 2}, {3, 4, 5}):
        seen = [row for row in found if row[2] in of_node]
        assert seen == sorted(seen)


@pytest.mark.long
@given(NODES, NODES, st.integers(0, 16), st.integers(0, 16), st.integers(1, 20), st.integers(1, 9))
def test_tail_and_what_is_read_after_any_of_its_blocks_are_the_end_of_the_log(
    first: list[tuple[int, list[str]]],
    second: list[tuple[int, list[str]]],
    early: int,
    late: int,
    count: int,
    limit: int,
) -> None:
    storage = Storage(f"memory://{uuid.uuid4().hex}")
    written = [numbered(node, rank, 2) for rank, node in enumerate((first, second))]
    writing = [stored(storage, 1, blocks, most=1) for blocks in written]
    for node, tries in zip(writing, (early, late), strict=True):
        deque(islice(node, tries), maxlen=0)
    there = read_on(storage, START, 1000)

    tail = LogReader(storage, JOB).tail_blocks(count)
    deque(chain(*writing), maxlen=0)

    assert rows(tail) == there[-count:]
    everything = model(1, [each for blocks in written for each in blocks])
    for index, lines in enumerate(tail):
        gone = there[: len(there) - len(rows(tail[index + 1 :]))]
        assert sorted(read_on(storage, lines.cursor, limit)) == [row for row in everything if row not in gone]


def test_lines_of_both_formats_are_read_as_one_log() -> None:
    storage = Storage(f"memory://{uuid.uuid4().hex}")
    rows = b"".join(
        b'{"n":%d,"at":"2026-01-01T00:00:00.000Z","rank":1,"line":"old %d \\ud800"%s}\n' % (n, n, lost)
        for n, lost in ((2, b""), (5, b',"lost":1'))
    )
    storage.grow(f"{logs_key(JOB, 1)}/rank-1-000002.jsonl", offset=0, tail=rows, whole=rows)
    LogWriter(storage, JOB, 1).append([block(1, "new"), block(3, "new"), block(6, "new", "new")])

    expected = [(1, 1, 0, "new"), (1, 2, 1, "old 2 \ud800"), (1, 3, 0, "new"), (1, 5, 1, "old 5 \ud800")]
    expected += [(1, 6, 0, "new"), (1, 7, 0, "new")]
    for limit in (1, 2, 9):
        for at in range(len(expected)):
            assert read_on(storage, expected[at][:2], limit) == expected[at + 1 :]
        assert [line.n for line in LogReader(storage, JOB).tail(limit)] == [row[1] for row in expected[-limit:]]
