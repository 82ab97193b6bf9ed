"""The unbound database: nothing connects before `bind`, and one place knows how each database must be opened."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from app.group_commit import GroupCommit

_LOCKED_PAUSE_SECONDS = 0.02
# How an engine runs statements outside a transaction. The sqlite3 driver begins none anyway.
_LOOKING: dict[str, dict[str, Any]] = {"sqlite": {"looks": True}, "postgresql": {"isolation_level": "AUTOCOMMIT"}}


class Database:
    """Sessions on one engine. `write` is one short transaction; `read` never changes anything."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._looking: Engine
        self._writing: Engine
        self._group: GroupCommit | None = None

    def bind(self, engine: Engine) -> "Database":
        self._engine = engine
        self._looking = engine.execution_options(**_LOOKING[engine.dialect.name])
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
        """Commits when the block ends, rolls back when it raises. On SQLite it holds the write lock from its start."""
        if self._group is not None:
            with self._group.write() as session:
                yield session
            return
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """To read with several questions what was all true at one moment."""
        with Session(self.engine, expire_on_commit=False) as session:
            if self.engine.dialect.name == "postgresql":
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """For a question that one statement answers: outside a transaction, which would ask the server twice more."""
        with self._looking.connect() as connection:
            yield connection

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


_READ_ONLY, _DEADLOCK = "25006", "40P01"  # PostgreSQL's own codes


def is_read_only(error: Exception) -> bool:
    """Whether the server refused to write because it is a standby, or was told to refuse: either passes."""
    return _sqlstate(error) == _READ_ONLY


def is_deadlock(error: Exception) -> bool:
    """Whether the server has ended this transaction so that another one, which waited for it, could go on."""
    return _sqlstate(error) == _DEADLOCK


def _sqlstate(error: Exception) -> object:
    return getattr(getattr(error, "orig", None), "sqlstate", None)


# A server that vanished without a word (power, network) is noticed within these, whether we wait for it to speak
# (keepalives: 2 + 3 x 1 s) or for it to take what we said (the timeout, in milliseconds).
POSTGRES_LIVENESS = {
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
}

# A process that stands still in the middle of a transaction loses it, and with it the rows it holds from all others. A
# busy machine may keep one waiting for a few seconds, too.
IDLE_IN_TRANSACTION_SECONDS = 15.0


def make_engine(
    url: str, *, busy_seconds: float = 5.0, pool_size: int = 10, statement_seconds: float | None = None
) -> Engine:
    """The engine for a database URL: SQLite in WAL mode with full durability, or PostgreSQL by psycopg 3.

    ``statement_seconds``: PostgreSQL gives up a statement after that long, for those whom a late answer would not help.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(url, busy_seconds)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return create_engine(
        parsed,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=busy_seconds,
        pool_pre_ping=True,  # a restarted server must cost one retry inside the pool, not a failed request
        connect_args={
            "connect_timeout": max(2, int(busy_seconds)),
            **{name: value for name, value in POSTGRES_LIVENESS.items() if name not in parsed.query},
            "options": _options(parsed, statement_seconds),
        },
    )


def _options(url: URL, statement_seconds: float | None) -> str:
    """The server's settings for our connections; what the URL says comes last and wins."""
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
        # SQLite would make it readable to all. Its neighbours (-wal, -shm) get the file's own permissions.
        if file is not None:
            with suppress(FileExistsError):
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        # The driver must not begin transactions by itself: a deferred BEGIN that writes later can fail with
        # SQLITE_BUSY_SNAPSHOT, which no busy timeout helps against. `_begin` below begins them.
        connection.isolation_level = None
        _use_wal(connection, busy_seconds)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        options = connection.get_execution_options()
        if not options.get("looks"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")

    return engine


def _file_of(database: str | None) -> Path | None:
    """None for a database in memory, and for SQLite's own URIs, which say themselves how they are opened."""
    if not database or database == ":memory:" or database.startswith("file:"):
        return None
    return Path(database)


def _use_wal(connection: Any, busy_seconds: float) -> None:
    """A new file's first connections may all switch it at once, and for that SQLite does not wait by itself."""
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
