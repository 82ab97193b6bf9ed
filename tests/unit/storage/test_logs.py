"""Log lines: nothing lost, nothing twice, also while they are being written and over several attempts."""

import json
import threading
import uuid
from pathlib import Path

import pytest

from app.domain.errors import TransientStorageError
from app.storage.log_blocks import LogBlock, encoded
from app.storage.log_writer import LogWriter
from app.storage.logs import START, LogLine, LogReader
from app.storage.object_keys import logs_key
from app.storage.storage import Storage
from tests.builders.log_blocks import block

AT = "2030-01-01T00:00:00.000Z"
JOB = "job-1"


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = tmp_path / "files" if request.param == "file" else uuid.uuid4().hex
    return Storage(f"{request.param}://{root}")


def one(n: int, rank: int = 0, text: str = "") -> LogBlock:
    return block(n, text or f"line {n}", rank=rank, at=AT)


def single(first: int, last: int, ranks: int = 1) -> list[LogBlock]:
    return [one(n, n % ranks) for n in range(first, last + 1)]


def store_row(storage: Storage, attempt: int, n: int, rank: int) -> None:
    """A line that another node stored, in the format of earlier releases."""
    row = f'{{"n":{n},"at":"{AT}","rank":{rank},"line":"of another"}}\n'.encode()
    storage.grow(f"{logs_key(JOB, attempt)}/rank-{rank}-{n:06d}.jsonl", offset=0, tail=row, whole=row)


def numbers(lines: list[LogLine]) -> list[tuple[int, int]]:
    return [line.cursor for line in lines]


def test_lines_come_back_in_order_over_all_ranks(storage: Storage) -> None:
    LogWriter(storage, JOB, 1).append([block(1, "a", at=AT), block(2, "b\u2028ü\ud800", "c", rank=1), block(4, "")])

    lines = LogReader(storage, JOB).read()

    assert [(line.n, line.rank, line.line) for line in lines] == [
        (1, 0, "a"),
        (2, 1, "b\u2028ü\ud800"),
        (3, 1, "c"),
        (4, 0, ""),
    ]
    assert lines[0].at == AT


def test_job_without_logs_has_no_lines(storage: Storage) -> None:
    assert LogReader(storage, JOB).read() == []
    assert LogReader(storage, JOB).tail(5) == []


def test_chunks_grow_then_a_new_one_begins_named_by_its_first_line(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1, chunk_bytes=300)
    for n in range(1, 21):
        writer.append([one(n)])

    files = storage.list(logs_key(JOB, 1))
    assert len(files) > 3
    assert all(file.size_bytes < 400 for file in files)
    for file in files:
        first = json.loads(storage.read(file.key).split(b"\n")[0])["n"]
        assert file.key.endswith(f"rank-0-{first:06d}.log")
    assert numbers(LogReader(storage, JOB).read()) == [(1, n) for n in range(1, 21)]


def test_large_batch_is_written_at_once_and_the_next_one_begins_a_chunk(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1, chunk_bytes=1000)
    for first in (1, 51):
        writer.append(single(first, first + 49, ranks=2))

    names = [file.key.rsplit("/", 1)[1] for file in storage.list(logs_key(JOB, 1))]
    assert names == ["rank-0-000002.log", "rank-0-000052.log", "rank-1-000001.log", "rank-1-000051.log"]
    assert numbers(LogReader(storage, JOB).read()) == [(1, n) for n in range(1, 101)]


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("rank", [None, 1])
def test_reading_on_from_each_cursor_gives_every_line_once(storage: Storage, limit: int, rank: int | None) -> None:
    for attempt in (1, 2, 11):
        LogWriter(storage, JOB, attempt, chunk_bytes=500).append(single(1, 30, ranks=3))
    reader = LogReader(storage, JOB)
    found: list[LogLine] = []
    cursor = START
    while batch := reader.read(cursor, rank=rank, limit=limit):
        assert len(batch) <= limit
        found += batch
        cursor = batch[-1].cursor

    wanted = [n for n in range(1, 31) if rank in (None, n % 3)]
    assert numbers(found) == [(attempt, n) for attempt in (1, 2, 11) for n in wanted]


def test_reading_stops_where_there_is_enough(storage: Storage) -> None:
    LogWriter(storage, JOB, 1).append([block(n, "x" * 10, "y" * 10) for n in range(1, 10, 2)])
    reader, cursor, sizes = LogReader(storage, JOB), START, []
    while found := reader.read_blocks(cursor, enough=30):
        sizes.append(sum(len(lines.texts) for lines in found))
        cursor = found[-1].cursor

    assert sizes == [4, 4, 2]


def test_line_of_another_rank_is_not_shown_before_earlier_ones(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1)
    writer.append([one(1, 0)])
    store_row(storage, 1, 3, rank=1)
    reader = LogReader(storage, JOB)

    assert numbers(reader.read()) == [(1, 1)]
    assert numbers(reader.tail(5)) == [(1, 1)]
    assert numbers(reader.read(rank=1)) == [(1, 3)]
    assert numbers(reader.read(live=False)) == [(1, 1), (1, 3)]
    assert numbers(reader.tail(5, live=False)) == [(1, 1), (1, 3)]

    writer.append([one(2, 0)])
    assert numbers(reader.read((1, 1))) == [(1, 2), (1, 3)]


def test_missing_line_of_a_node_holds_up_its_own_lines_alone(storage: Storage) -> None:
    nodes, late = [LogWriter(storage, JOB, 1) for _ in range(2)], encoded(block(5, "c", rank=1, step=2), lost=1)
    nodes[0].append([block(1, "a", step=2)])
    storage.grow(f"{logs_key(JOB, 1)}/rank-1-000005.log", offset=0, tail=late, whole=late)
    nodes[1].append([block(2, "x", "y", "z", rank=2, step=2)])
    reader = LogReader(storage, JOB)

    found, tail = reader.read_blocks(), reader.tail_blocks(9)
    nodes[0].append([block(3, "b", step=2)])

    for blocks in (found, tail):
        assert [line.line for lines in blocks for line in lines] == ["a", "x", "y", "z"]
        assert [line.line for line in reader.read(blocks[-1].cursor)] == ["b", "c"]


def test_gap_of_an_earlier_attempt_does_not_hold_up_the_next(storage: Storage) -> None:
    store_row(storage, 1, 3, rank=1)
    LogWriter(storage, JOB, 2).append([one(1)])

    assert numbers(LogReader(storage, JOB).read()) == [(1, 3), (2, 1)]


def test_lines_that_were_given_up_do_not_hold_up_readers(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1)
    writer.append([one(1, 0), one(2, 1)])
    writer.append([one(10, 1), one(11, 0)])

    assert numbers(LogReader(storage, JOB).read()) == [(1, 1), (1, 2), (1, 10), (1, 11)]
    assert numbers(LogReader(storage, JOB).read((1, 5))) == [(1, 10), (1, 11)]
    assert numbers(LogReader(storage, JOB).tail(2)) == [(1, 10), (1, 11)]


@pytest.mark.parametrize("count", [1, 5, 29, 30, 31, 60, 500])
def test_tail_gives_the_last_lines_over_attempts(storage: Storage, count: int) -> None:
    for attempt in (1, 2):
        LogWriter(storage, JOB, attempt, chunk_bytes=400).append(single(1, 30, ranks=3))
    everything = [(attempt, n) for attempt in (1, 2) for n in range(1, 31)]

    assert numbers(LogReader(storage, JOB).tail(count)) == everything[-count:]
    of_rank = [(a, n) for a, n in everything if n % 3 == 2]
    assert numbers(LogReader(storage, JOB).tail(count, rank=2)) == of_rank[-count:]


def test_tail_with_uneven_ranks_has_no_false_gap(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1)
    writer.append([one(1, 1), *[one(n, 0) for n in range(2, 50)], one(50, 1)])

    assert numbers(LogReader(storage, JOB).tail(10)) == [(1, n) for n in range(41, 51)]


def test_half_written_block_is_not_shown(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}")
    LogWriter(storage, JOB, 1).append([one(1), block(2, "two", "three")])
    path = storage.local_path(storage.list(logs_key(JOB, 1))[0].key)
    assert path is not None
    whole = path.read_bytes()
    of_first = whole.index(b"line 1\n") + len(b"line 1\n")

    for size in range(of_first, len(whole)):
        path.write_bytes(whole[:size])
        assert numbers(LogReader(storage, JOB).read()) == [(1, 1)]


class FlakyStorage(Storage):
    """Fails every other growth, after having written half of it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.calls = 0

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        self.calls += 1
        if self.calls % 2:
            super().grow(key, offset=offset, tail=tail[: len(tail) // 2], whole=whole[: offset + len(tail) // 2])
            raise TransientStorageError("full")
        super().grow(key, offset=offset, tail=tail, whole=whole)


def test_giving_the_same_lines_again_after_a_failure_loses_and_repeats_none(tmp_path: Path) -> None:
    storage = FlakyStorage(f"file://{tmp_path}")
    writer = LogWriter(storage, JOB, 1, chunk_bytes=400)
    pending: list[LogBlock] = []
    for start in range(1, 100, 7):
        pending += single(start, start + 6, ranks=3)
        try:
            writer.append(pending)
            pending = []
        except TransientStorageError:
            continue
    while pending:
        try:
            writer.append(pending)
            pending = []
        except TransientStorageError:
            continue

    assert numbers(LogReader(storage, JOB).read()) == [(1, n) for n in range(1, 106)]


def test_reader_beside_a_busy_writer_sees_every_line_once_and_in_order(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}")
    total = 4000

    def write() -> None:
        writer = LogWriter(storage, JOB, 1, chunk_bytes=4000)
        for start in range(1, total, 10):
            writer.append(single(start, start + 9, ranks=3))

    thread = threading.Thread(target=write)
    thread.start()
    reader, cursor = LogReader(storage, JOB), START
    found: list[tuple[int, int]] = []
    while len(found) < total:
        batch = reader.read(cursor, limit=137)
        found += numbers(batch)
        cursor = batch[-1].cursor if batch else cursor
    thread.join()

    assert found == [(1, n) for n in range(1, total + 1)]
