"""Full disks: recognized behind any exception, waited for patiently, and finally given up on."""

import errno
import sqlite3

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from app.domain.errors import TransientStorageError
from workers.attempt_failed import AttemptFailed
from workers.supervisor.recording.disk_space import DiskSpaceWatch, is_full, named

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def raised(cause: BaseException) -> AttemptFailed:
    """As the storage's errors come out of preparing."""
    try:
        try:
            try:
                raise cause
            except OSError as error:
                raise TransientStorageError("the storage failed") from error
        except TransientStorageError as error:
            raise AttemptFailed("STORAGE_ERROR", "checkpoint: the storage failed") from error
    except AttemptFailed as error:
        return error


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (NO_SPACE, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (raised(NO_SPACE), True),
        (raised(OSError(errno.EACCES, "Permission denied")), False),
        (None, False),
    ],
)
def test_full_disk_is_found_behind_what_was_raised(error, full):
    assert is_full(error) is full


def test_full_database_is_a_full_disk(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'full.db'}")
    with engine.connect() as connection:
        connection.execute(text("PRAGMA max_page_count = 2"))
        connection.execute(text("CREATE TABLE t (x)"))
        with pytest.raises(OperationalError) as refused:
            connection.execute(text("INSERT INTO t VALUES (randomblob(100000))"))
    engine.dispose()

    assert isinstance(refused.value.orig, sqlite3.OperationalError)
    assert is_full(refused.value)


def test_failure_is_named_by_what_is_behind_it():
    assert named(raised(NO_SPACE)).error_type == "DISK_FULL"
    assert named(raised(OSError(errno.EIO, "Input/output error"))).error_type == "STORAGE_ERROR"


class Heard:
    def __init__(self, patience_seconds: float, *, hurries: bool = False) -> None:
        self.waiting: list[str] = []
        self.over: list[str] = []
        self.room = DiskSpaceWatch(
            patience_seconds, hurries=lambda: hurries, on_waiting=self.waiting.append, on_over=self.over.append
        )


def test_wait_is_reported_once_and_ends():
    heard = Heard(0.0)

    assert heard.room.full("a checkpoint", NO_SPACE)
    assert not heard.room.full("a checkpoint", NO_SPACE)
    assert not heard.room.full("log lines", NO_SPACE)

    assert heard.waiting == [
        "a checkpoint found no room: No space left on device",
        "log lines found no room: No space left on device",
    ]
    assert heard.over == ["a checkpoint found no room: No space left on device; waited for 0 s"]


def test_what_was_stored_after_all_has_not_waited():
    heard = Heard(60.0)
    heard.room.full("a checkpoint", NO_SPACE)

    heard.room.stored("a checkpoint")

    assert heard.room.last_error == ""
    assert heard.room.full("a checkpoint", NO_SPACE)
    assert len(heard.waiting) == 2


def test_no_thread_waits_for_room_when_its_caller_waits_for_the_answer():
    heard = Heard(0.0, hurries=True)

    assert [heard.room.full("a checkpoint", NO_SPACE) for _ in range(3)] == [False] * 3
    assert (len(heard.waiting), heard.over) == (1, [])
    assert "No space left" in heard.room.last_error
