"""Log lines: nothing lost, nothing twice, also while they are being written and over several attempts."""

import json
import threading
import uuid
from pathlib import Path

import pytest

from app.domain.errors import TransientStorageError
from app.storage.keys import logs_key
from app.storage.logs import START, LogLine, LogReader, LogWriter
from app.storage.storage import Storage

AT = "2030-01-01T00:00:00.000Z"
JOB = "job-1"


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = tmp_path / "files" if request.param == "file" else uuid.uuid4().hex
    return Storage(f"{request.param}://{root}")


def row(n: int, rank: int = 0, text: str = "") -> tuple[int, str, int, str]:
    return n, AT, rank, text or f"line {n}"


def rows(first: int, last: int, ranks: int = 1) -> list[tuple[int, str, int, str]]:
    return [row(n, n % ranks) for n in range(first, last + 1)]


def numbers(lines: list[LogLine]) -> list[tuple[int, int]]:
    return [line.cursor for line in lines]


def test_lines_come_back_in_order_over_all_ranks(storage: Storage) -> None:
    LogWriter(storage, JOB, 1).append([row(1, 0, "a"), row(2, 1, "b\u2028ü\ud800"), row(3, 0, "")])

    lines = LogReader(storage, JOB).read()

    assert [(line.n, line.rank, line.line) for line in lines] == [
        (1, 0, "a"),
        (2, 1, "b\u2028ü\ud800"),
        (3, 0, "line 3"),
    ]
    assert lines[0].at == AT


def test_job_without_logs_has_no_lines(storage: Storage) -> None:
    assert LogReader(storage, JOB).read() == []
    assert LogReader(storage, JOB).tail(5) == []


def test_chunks_grow_then_a_new_one_begins_named_by_its_first_line(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1, chunk_bytes=300)
    for n in range(1, 21):
        writer.append([row(n)])

    files = storage.list(logs_key(JOB, 1))
    assert len(files) > 3
    assert all(file.size_bytes < 400 for file in files)
    for file in files:
        first = json.loads(storage.read(file.key).split(b"\n")[0])["n"]
        assert file.key.endswith(f"rank-0-{first:06d}.jsonl")
    assert numbers(LogReader(storage, JOB).read()) == [(1, n) for n in range(1, 21)]


def test_large_batch_is_cut_into_chunks(storage: Storage) -> None:
    LogWriter(storage, JOB, 1, chunk_bytes=1000).append(rows(1, 100, ranks=2))

    assert max(file.size_bytes for file in storage.list(logs_key(JOB, 1))) < 1100
    assert numbers(LogReader(storage, JOB).read()) == [(1, n) for n in range(1, 101)]


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("rank", [None, 1])
def test_reading_on_from_each_cursor_gives_every_line_once(storage: Storage, limit: int, rank: int | None) -> None:
    for attempt in (1, 2, 11):
        LogWriter(storage, JOB, attempt, chunk_bytes=500).append(rows(1, 30, ranks=3))
    reader = LogReader(storage, JOB)
    found: list[LogLine] = []
    cursor = START
    while batch := reader.read(cursor, rank=rank, limit=limit):
        assert len(batch) <= limit
        found += batch
        cursor = batch[-1].cursor

    wanted = [n for n in range(1, 31) if rank in (None, n % 3)]
    assert numbers(found) == [(attempt, n) for attempt in (1, 2, 11) for n in wanted]


def test_line_of_another_rank_is_not_shown_before_earlier_ones(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1)
    writer.append([row(1, 0)])
    LogWriter(storage, JOB, 1)._grow(1, [(3, b'{"n":3,"at":"","rank":1,"line":"early"}\n')])
    reader = LogReader(storage, JOB)

    assert numbers(reader.read()) == [(1, 1)]
    assert numbers(reader.tail(5)) == [(1, 1)]
    assert numbers(reader.read(rank=1)) == [(1, 3)]
    assert numbers(reader.read(live=False)) == [(1, 1), (1, 3)]
    assert numbers(reader.tail(5, live=False)) == [(1, 1), (1, 3)]

    writer.append([row(2, 0)])
    assert numbers(reader.read((1, 1))) == [(1, 2), (1, 3)]


def test_gap_of_an_earlier_attempt_does_not_hold_up_the_next(storage: Storage) -> None:
    LogWriter(storage, JOB, 1)._grow(1, [(3, b'{"n":3,"at":"","rank":1,"line":"x"}\n')])
    LogWriter(storage, JOB, 2).append([row(1)])

    assert numbers(LogReader(storage, JOB).read()) == [(1, 3), (2, 1)]


def test_lines_that_were_given_up_do_not_hold_up_readers(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1)
    writer.append([row(1, 0), row(2, 1)])
    writer.append([row(10, 1), row(11, 0)])

    assert numbers(LogReader(storage, JOB).read()) == [(1, 1), (1, 2), (1, 10), (1, 11)]
    assert numbers(LogReader(storage, JOB).read((1, 5))) == [(1, 10), (1, 11)]
    assert numbers(LogReader(storage, JOB).tail(2)) == [(1, 10), (1, 11)]


@pytest.mark.parametrize("count", [1, 5, 29, 30, 31, 60, 500])
def test_tail_gives_the_last_lines_over_attempts(storage: Storage, count: int) -> None:
    for attempt in (1, 2):
        LogWriter(storage, JOB, attempt, chunk_bytes=400).append(rows(1, 30, ranks=3))
    everything = [(attempt, n) for attempt in (1, 2) for n in range(1, 31)]

    assert numbers(LogReader(storage, JOB).tail(count)) == everything[-count:]
    of_rank = [(a, n) for a, n in everything if n % 3 == 2]
    assert numbers(LogReader(storage, JOB).tail(count, rank=2)) == of_rank[-count:]


def test_tail_with_uneven_ranks_has_no_false_gap(storage: Storage) -> None:
    writer = LogWriter(storage, JOB, 1)
    writer.append([row(1, 1), *[row(n, 0) for n in range(2, 50)], row(50, 1)])

    assert numbers(LogReader(storage, JOB).tail(10)) == [(1, n) for n in range(41, 51)]


def test_half_written_line_is_not_shown(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}")
    LogWriter(storage, JOB, 1).append([row(1), row(2)])
    path = storage.local_path(storage.list(logs_key(JOB, 1))[0].key)
    assert path is not None
    path.write_bytes(path.read_bytes()[:-5])

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
    pending: list[tuple[int, str, int, str]] = []
    for start in range(1, 100, 7):
        pending += rows(start, start + 6, ranks=3)
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
            writer.append(rows(start, start + 9, ranks=3))

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
