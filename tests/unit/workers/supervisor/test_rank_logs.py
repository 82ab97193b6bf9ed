"""What ranks write into their pipes reaches the storage whole, and a storage that is behind holds them up."""

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.logs import LogReader
from app.storage.object_keys import logs_key
from app.storage.storage import Storage
from config.redaction import Redaction
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.rank_logs import LAST_LINES, READ_BYTES, RankLogs
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.log_backlog import LogBacklog
from workers.supervisor.recording.log_store import LogStore

JOB = "job-1"


class SlowStorage(Storage):
    """Takes nothing before its gate is open."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = threading.Event()

    def grow(self, key: str, *, offset: int, tail: bytes, whole: bytes) -> None:
        assert self.gate.wait(60)
        super().grow(key, offset=offset, tail=tail, whole=whole)


class Ranks:
    """Two ranks' ends of their pipes, and a supervisor's log of them."""

    def __init__(self, storage: Storage, backlog: LogBacklog) -> None:
        room = DiskSpaceWatch(60, hurries=lambda: False, on_waiting=print, on_over=print)
        self.loop, self.heard = EventLoop(), list[str]()
        self.store = LogStore(storage, JOB, 1, room=room, backlog=backlog, clock=lambda: 0.0)
        self.logs = RankLogs(self.loop, self.store)
        pipes = [os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) for _ in range(2)]
        self.writers = [writer for _, writer in pipes]
        self.logs.read_from([reader for reader, _ in pipes], Redaction(), on_lines=self.heard.extend)

    def end(self) -> None:
        """Close the ranks' ends, and store what is left."""
        for writer in self.writers:
            os.close(writer)
        self.writers = []
        self.logs.hurry()
        self.loop.run_until(lambda: self.logs.are_closed)
        self.logs.close()
        assert self.store.close(30) == 0
        self.loop.close()


@pytest.fixture
def storage(tmp_path: Path) -> SlowStorage:
    return SlowStorage(f"file://{tmp_path}")


@pytest.fixture
def ranks(storage: SlowStorage) -> Iterator[Ranks]:
    ranks = Ranks(storage, LogBacklog(full_bytes=3 * READ_BYTES))
    yield ranks
    for writer in ranks.writers:  # of a test that failed
        os.close(writer)


def test_lines_of_a_moment_are_stored_as_one_block(ranks: Ranks, storage: SlowStorage) -> None:
    storage.gate.set()
    os.write(ranks.writers[0], b"first\n")
    ranks.loop.run_until(lambda: ranks.heard == ["first"])
    for number in range(100):
        os.write(ranks.writers[0], b"line %d\n" % number)
    ranks.loop.run_until(lambda: len(ranks.heard) == 101)
    ranks.end()

    (file,) = storage.list(logs_key(JOB, 1))
    assert storage.read(file.key).count(b'"count":') == 2
    assert [line.line for line in LogReader(storage, JOB).read()] == ["first", *(f"line {n}" for n in range(100))]


@pytest.mark.long
def test_rank_is_held_up_while_the_storage_is_behind_and_loses_nothing(ranks: Ranks, storage: SlowStorage) -> None:
    data, written = b"".join(b"%06d%s\n" % (n, b"x" * 93) for n in range(20_000)), 0

    def is_held_up() -> bool:
        """Whether the rank's next write would block."""
        nonlocal written
        try:
            written += os.write(ranks.writers[1], data[written : written + READ_BYTES])
        except BlockingIOError:
            return True
        return False

    ranks.loop.run_until(lambda: is_held_up() and not ranks.store.has_room)
    held_up_at = written
    storage.gate.set()
    ranks.loop.run_until(lambda: not is_held_up() and written == len(data))
    ranks.end()

    assert 3 * READ_BYTES <= held_up_at < len(data)
    assert [line.line[:6] for line in LogReader(storage, JOB).read(limit=30_000)] == [f"{n:06d}" for n in range(20_000)]


def test_last_lines_of_each_rank_are_kept(ranks: Ranks, storage: SlowStorage) -> None:
    storage.gate.set()
    for number in range(3):
        os.write(ranks.writers[0], b"".join(b"%d %d\n" % (number, n) for n in range(40)))
        ranks.loop.run_until(lambda: len(ranks.heard) == 40 * (number + 1))  # noqa: B023 – called in this round
    os.write(ranks.writers[1], b"the end")
    ranks.end()

    said = [f"{number} {n}" for number in range(3) for n in range(40)]
    assert ranks.logs.last_lines == {0: said[-LAST_LINES:], 1: ["the end"]}


def test_lines_before_a_checkpoint_are_read_before_it_is_recorded(storage: SlowStorage, ranks: Ranks) -> None:
    storage.gate.set()
    os.write(ranks.writers[0], b"step 1\n")
    ranks.loop.run_until(lambda: bool(ranks.heard))
    fcntl.fcntl(ranks.writers[0], fcntl.F_SETPIPE_SZ, 4 * READ_BYTES)
    filler = b"." * READ_BYTES + b"\n"  # more than one read takes, while the pipe is left unread for a moment
    assert os.write(ranks.writers[0], filler + b"step 2\n") > READ_BYTES

    ranks.logs.catch_up()

    assert (ranks.heard[0], ranks.heard[-1]) == ("step 1", "step 2")
    ranks.end()
