"""Writers of one process that come at the same time share a transaction of SQLite, and the sync of the disk at its end.

SQLite takes one writer at a time, and most of what a short transaction costs there is its commit.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

# While a transaction is open, other processes wait: it takes in no more writers after that.
LONGEST_SECONDS = 0.02


class NotCommitted(Exception):
    """What the writers of a group wrote is not there."""


@dataclass
class _Group:
    connection: Connection
    until: float
    over: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def is_alive(self) -> bool:
        """Some errors (a full disk) make SQLite roll back everything, not only the statement."""
        driver: Any = self.connection.connection.driver_connection
        return bool(driver.in_transaction)

    def commit(self) -> None:
        if not self.connection.in_transaction():
            return  # its only writer has rolled back, and left without an error
        # The driver takes a commit without a transaction for a good one.
        if not self.is_alive():
            raise NotCommitted("SQLite has rolled the transaction back")
        self.connection.commit()


class GroupCommit:
    """One for each database file in a process; ``engine`` begins with the write lock.

    Each writer has a turn of its own, after the first one in a savepoint: what fails takes nobody else's work along.
    Whoever finds nobody waiting after it commits for all, and before that none of them goes on.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._open: _Group | None = None  # for who has the turn

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose work is committed when the block has been left, or rolled back because it raised."""
        group: _Group | None = None
        self._take_turn()
        try:
            group, is_first = self._joined()
            mode: Any = "rollback_only" if is_first else "create_savepoint"
            try:
                with (
                    Session(group.connection, expire_on_commit=False, join_transaction_mode=mode) as session,
                    session.begin(),
                ):
                    yield session
            except BaseException as error:
                if is_first or not group.is_alive():
                    self._end(group, error)
                raise
            finally:
                if not group.over.is_set() and not self._takes_more(group):
                    self._end(group)
        except Exception:
            self._turn.release()
            # It may have met what another one of the group wrote: whoever looks for that next must find it committed.
            if group is not None and group.error is None:
                self._wait_for(group)
            raise
        except BaseException:
            self._turn.release()
            raise
        self._turn.release()
        self._wait_for(group)

    def _take_turn(self) -> None:
        with self._counting:
            self._waiting += 1
        try:
            self._turn.acquire()
        finally:
            with self._counting:
                self._waiting -= 1

    def _joined(self) -> tuple[_Group, bool]:
        if self._open is not None:
            return self._open, False
        connection = self._engine.connect()
        try:
            connection.begin()
        except BaseException:
            connection.close()
            raise
        self._open = _Group(connection, until=self._clock() + LONGEST_SECONDS)
        return self._open, True

    def _takes_more(self, group: _Group) -> bool:
        return self._waiting > 0 and group.is_alive() and self._clock() < group.until

    def _end(self, group: _Group, error: BaseException | None = None) -> None:
        """Commit; after an error that ended the transaction, have nothing of it stay."""
        self._open, group.error = None, error or NotCommitted("the commit was interrupted")
        try:
            if error is None:
                group.commit()
                group.error = None
        except Exception as failure:  # noqa: BLE001  each writer of the group raises it
            group.error = failure
        finally:
            group.over.set()
            with closing(group.connection):
                group.connection.rollback()  # for a commit that failed: closing alone leaves the transaction open

    def _wait_for(self, group: _Group) -> None:
        while not group.over.wait(LONGEST_SECONDS):
            # Who was to come next has given up (interrupted), or is slow: then this one sees to it.
            with self._turn:
                if self._open is group:
                    self._end(group)
        if group.error is not None:
            raise OperationalError("COMMIT", None, group.error) from group.error
