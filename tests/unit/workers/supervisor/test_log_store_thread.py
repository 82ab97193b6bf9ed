"""The thread that stores log lines: ranks wait for a slow storage, and for one that fails they do not."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.errors import TransientStorageError
from app.storage.logs import LogReader
from app.storage.storage import Storage
from tests.builders.log_blocks import block
from tests.systems.system import wait_for
from workers.supervisor.recording import log_store
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.log_backlog import BLOCK_BYTES, LogBacklog
from workers.supervisor.recording.log_store import LogStore

JOB = "job-1"
SIZE = BLOCK_BYTES + 2


class GatedStorage(Storage):
    """Takes lines only while its gate is open; fails instead of waiting where that is asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = threading.Event()
        self.fails = False
        self.asked = threading.Event()

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        self.asked.set()
        if self.fails:
            raise TransientStorageError("away")
        assert self.gate.wait(60)
        super().grow(key, offset=offset, tail=tail, whole=whole)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def storage(tmp_path: Path) -> GatedStorage:
    return GatedStorage(f"file://{tmp_path}")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(storage: GatedStorage, clock: Clock) -> Iterator[LogStore]:
    backlog = LogBacklog(full_bytes=100 * SIZE, most_bytes=200 * SIZE)
    store = LogStore(
        storage,
        JOB,
        1,
        room=DiskSpaceWatch(60, hurries=lambda: False, on_waiting=print, on_over=print),
        backlog=backlog,
        clock=clock,
    )
    yield store
    storage.fails = False
    storage.gate.set()
    store.close(1)


def add(store: LogStore, first: int, last: int) -> None:
    """A block for each line."""
    for number in range(first, last + 1):
        store.add(block(number, "x"))


def test_ranks_wait_for_a_slow_storage_and_no_line_is_dropped(store: LogStore, storage: GatedStorage) -> None:
    add(store, 1, 10)
    assert storage.asked.wait(30)
    add(store, 11, 150)
    assert not store.has_room

    storage.gate.set()

    wait_for(lambda: store.has_room, seconds=30, what="room")
    assert store.close(30) == 0
    assert [line.n for line in LogReader(storage, JOB).read()] == list(range(1, 151))


def test_storage_that_stalls_holds_no_rank_up_for_ever(store: LogStore, storage: GatedStorage, clock: Clock) -> None:
    add(store, 1, 10)
    assert storage.asked.wait(30)
    add(store, 11, 150)

    clock.now = log_store.STALLED_SECONDS + 1

    assert store.has_room


def test_storage_that_fails_costs_the_oldest_lines_and_readers_see_how_many_and_where(
    store: LogStore, storage: GatedStorage
) -> None:
    storage.fails = True
    add(store, 1, 10)
    assert storage.asked.wait(30)
    add(store, 11, 250)
    wait_for(lambda: store.has_room, seconds=30, what="ranks that write on")

    storage.gate.set()
    storage.fails = False
    assert store.close(30) == 0

    found = LogReader(storage, JOB).read()
    assert [line.n for line in found] == [*range(1, 11), *range(50, 251)]
    assert found[10].line == "[trainyard] 40 lines dropped here: the storage took no log lines for too long"


def test_lines_that_could_not_be_stored_at_the_end_are_counted(store: LogStore, storage: GatedStorage) -> None:
    storage.fails = True
    add(store, 1, 10)
    assert storage.asked.wait(30)
    add(store, 11, 250)

    assert store.close(0) == 250
