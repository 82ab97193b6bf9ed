"""The database: unbound until `bind`, with the connection options of SQLite and PostgreSQL in one place."""

import os
import select
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session

from app.database.group_commit import GroupCommit

_LOCKED_PAUSE_SECONDS = 0.02
# Execution options for statements outside a transaction; the sqlite3 driver does not begin one by itself.
_AUTOCOMMIT: dict[str, dict[str, Any]] = {
    "sqlite": {"autocommit": True},
    "postgresql": {"isolation_level": "AUTOCOMMIT"},
}


class Database:
    """Sessions on one engine. `write` is one short transaction; `read` never changes anything."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._autocommit: Engine
        self._at_once: Engine
        self._writing: Engine
        self._group: GroupCommit | None = None

    def bind(self, engine: Engine) -> "Database":
        self._engine = engine
        self._autocommit = engine.execution_options(**_AUTOCOMMIT[engine.dialect.name])
        self._at_once = self._autocommit.execution_options(writes=True)
        self._writing = engine.execution_options(writes=True)
        if engine.dialect.name == "sqlite":
            # SQLite lets waiting writers poll with growing pauses; threads of one process queue up here instead.
            self._group = GroupCommit(self._writing)
        return self

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the database is not bound; call bind(make_engine(...)) in the entry point")
        return self._engine

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction: commits at the end of the block, rolls back on an exception. Locks SQLite from its start."""
        if self._group is not None:
            with self._group.write() as session:
                yield session
            return
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def at_once(self) -> Iterator[Connection]:
        """For what is written by one statement on PostgreSQL: it is its own transaction, with one round trip of four.

        On SQLite, a transaction as of `write`.
        """
        if self._group is not None:
            with self._group.at_once() as connection:
                yield connection
            return
        with self._at_once.connect() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Several queries on one consistent snapshot."""
        with Session(self.engine, expire_on_commit=False) as session:
            if self.engine.dialect.name == "postgresql":
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def query(self) -> Iterator[Connection]:
        """For a single statement outside a transaction, which would cost two more round trips."""
        with self._autocommit.connect() as connection:
            yield connection

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


_READ_ONLY, _DEADLOCK = "25006", "40P01"  # PostgreSQL's own codes


def is_read_only(error: Exception) -> bool:
    """Whether the server refused a write because it is a standby or read-only; both are transient."""
    return _sqlstate(error) == _READ_ONLY


def is_deadlock(error: Exception) -> bool:
    """Whether the server aborted this transaction to resolve a deadlock."""
    return _sqlstate(error) == _DEADLOCK


def _sqlstate(error: Exception) -> object:
    return getattr(getattr(error, "orig", None), "sqlstate", None)


# Detect a server that vanished silently (power, network), both while waiting for data (keepalives: 2 + 3 x 1 s) and for
# acknowledgements (tcp_user_timeout, in milliseconds).
POSTGRES_LIVENESS = {
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
}

# A process that stalls within a transaction loses it, together with its row locks. The limit tolerates a process that
# waits a few seconds on a busy machine.
IDLE_IN_TRANSACTION_SECONDS = 15.0


def make_engine(
    url: str, *, busy_seconds: float = 5.0, pool_size: int = 10, statement_seconds: float | None = None
) -> Engine:
    """The engine for a database URL: SQLite in WAL mode with full durability, or PostgreSQL by psycopg 3.

    ``statement_seconds``: PostgreSQL cancels a statement after this time, for callers that need no late answer.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(url, busy_seconds)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    engine = create_engine(
        parsed,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=busy_seconds,
        connect_args={
            "connect_timeout": max(2, int(busy_seconds)),
            **{name: value for name, value in POSTGRES_LIVENESS.items() if name not in parsed.query},
            "options": _options(parsed, statement_seconds),
        },
    )
    event.listen(engine, "checkout", partial(_refuse_if_lost, engine.dialect))
    return engine


def _refuse_if_lost(dialect: Dialect, connection: DBAPIConnection, _record: object, _proxy: object) -> None:
    """A restarted server must cost one retry inside the pool, not a failed request.

    A connection that the server or the kernel has closed is readable, without a round trip as of `pool_pre_ping`.
    """
    driver: Any = connection
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    if not poll.poll(0):
        return
    try:
        dialect.do_ping(connection)  # the server may also have sent a notice
    except dialect.loaded_dbapi.Error as error:
        raise InvalidatePoolError from error


def _options(url: URL, statement_seconds: float | None) -> str:
    """Server settings of our connections; options of the URL come last and take precedence."""
    settings = {
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_SECONDS,
        "statement_timeout": statement_seconds,
    }
    ours = [f"-c {name}={int(seconds * 1000)}" for name, seconds in settings.items() if seconds is not None]
    theirs = url.query.get("options", ())
    return " ".join([*ours, *([theirs] if isinstance(theirs, str) else theirs)])


def _sqlite(url: str, busy_seconds: float) -> Engine:
    file = _file_of(make_url(url).database)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = create_engine(url, connect_args={"timeout": busy_seconds, "check_same_thread": False})

    @event.listens_for(engine, "do_connect")
    def _keep_to_ourselves(*_: Any) -> None:
        # SQLite would create it world-readable. Its -wal and -shm files get the same permissions.
        if file is not None:
            with suppress(FileExistsError):
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver must not begin transactions: a deferred BEGIN that writes later can fail with
        # SQLITE_BUSY_SNAPSHOT, which no busy timeout avoids. `_begin` below begins them.
        connection.isolation_level = None
        _use_wal(connection, busy_seconds)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("autocommit"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")

    return engine


def _file_of(database: str | None) -> Path | None:
    """Path of the database file; None for in-memory databases and SQLite URIs, which contain their own options."""
    if not database or database == ":memory:" or database.startswith("file:"):
        return None
    return Path(database)


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch to WAL, with retries: new connections may switch concurrently, for which SQLite does not wait."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_LOCKED_PAUSE_SECONDS)
        else:
            return
