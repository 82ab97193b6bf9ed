"""Group commit: concurrent writers of one process share an SQLite transaction and its disk sync.

SQLite has one writer at a time, and the commit is most of the cost of a short transaction.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

# Other processes wait while a transaction is open: it accepts no more writers after this time.
LONGEST_SECONDS = 0.02


class NotCommitted(Exception):
    """The group's transaction was not committed."""


@dataclass
class _Group:
    connection: Connection
    until: float
    over: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def is_alive(self) -> bool:
        """Whether the transaction is still open: some errors (a full disk) make SQLite roll it back completely."""
        driver: Any = self.connection.connection.driver_connection
        return bool(driver.in_transaction)

    def commit(self) -> None:
        if not self.connection.in_transaction():
            return  # its only writer has rolled back without an error
        # The driver reports success for a commit without a transaction.
        if not self.is_alive():
            raise NotCommitted("SQLite has rolled the transaction back")
        self.connection.commit()


_Writer = TypeVar("_Writer")
_Begin = Callable[[_Group, bool], AbstractContextManager[_Writer]]  # the group, and whether it is its first writer


@contextmanager
def _session(group: _Group, is_first: bool) -> Iterator[Session]:  # noqa: FBT001  as `_Begin` says
    mode: Any = "rollback_only" if is_first else "create_savepoint"
    with Session(group.connection, expire_on_commit=False, join_transaction_mode=mode) as session, session.begin():
        yield session


@contextmanager
def _statements(group: _Group, is_first: bool) -> Iterator[Connection]:  # noqa: FBT001  the same
    if is_first:
        yield group.connection
        return
    group.connection.exec_driver_sql("SAVEPOINT writer")
    try:
        yield group.connection
    except BaseException:
        if group.is_alive():
            group.connection.exec_driver_sql("ROLLBACK TO writer")
            group.connection.exec_driver_sql("RELEASE writer")
        raise
    group.connection.exec_driver_sql("RELEASE writer")


class GroupCommit:
    """One instance per database file and process; transactions of ``engine`` begin with the write lock.

    Writers run one at a time, all but the first in a savepoint, so that a failure does not affect the others. The
    writer that finds no one waiting commits for all; every writer waits for that commit.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._open: _Group | None = None  # guarded by ``_turn``

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session; its work is committed when the block has ended, or rolled back if it raised."""
        with self._writing(_session) as session:
            yield session

    @contextmanager
    def at_once(self) -> Iterator[Connection]:
        """As `write`, in half its time, for statements without a session."""
        with self._writing(_statements) as connection:
            yield connection

    @contextmanager
    def _writing(self, begin: _Begin[_Writer]) -> Iterator[_Writer]:
        group: _Group | None = None
        self._take_turn()
        try:
            group, is_first = self._joined()
            try:
                with begin(group, is_first) as writer:
                    yield writer
            except BaseException as error:
                if is_first or not group.is_alive():
                    self._end(group, error)
                raise
            finally:
                if not group.over.is_set() and not self._takes_more(group):
                    self._end(group)
        except Exception:
            self._turn.release()
            # The error may be due to an uncommitted row of the group: wait, so that the caller's next read sees it.
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
        """Commit; after an error that ended the transaction, roll everything back."""
        self._open, group.error = None, error or NotCommitted("the commit was interrupted")
        try:
            if error is None:
                group.commit()
                group.error = None
        except Exception as failure:  # noqa: BLE001  every writer of the group raises it
            group.error = failure
        finally:
            group.over.set()
            with closing(group.connection):
                group.connection.rollback()  # after a failed commit: close() alone would leave the transaction open

    def _wait_for(self, group: _Group) -> None:
        while not group.over.wait(LONGEST_SECONDS):
            # The next writer was interrupted or is slow: this one ends the group.
            with self._turn:
                if self._open is group:
                    self._end(group)
        if group.error is not None:
            raise OperationalError("COMMIT", None, group.error) from group.error
