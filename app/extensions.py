"""The unbound database: nothing connects before `bind`, and one place knows how each database must be opened."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

_LOCKED_PAUSE_SECONDS = 0.02


class Database:
    """Sessions on one engine. `write` is one short transaction; `read` never changes anything."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._turn: AbstractContextManager[object] = nullcontext()

    def bind(self, engine: Engine) -> "Database":
        self._engine = engine
        if engine.dialect.name == "sqlite":
            # SQLite lets waiting writers poll with growing pauses; threads of one process queue up here instead.
            self._turn = threading.Lock()
        return self

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the database is not bound; call bind(make_engine(...)) in the entry point")
        return self._engine

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Commits when the block ends, rolls back when it raises. On SQLite it holds the write lock from its start."""
        writing = self.engine.execution_options(writes=True)
        with self._turn, Session(writing, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


# A server that vanished without a word (power, network) is noticed within these, whether we wait for it to speak
# (keepalives: 2 + 3 x 1 s) or for it to take what we said (the timeout, in milliseconds).
POSTGRES_LIVENESS = {
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
}


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
    # pool_pre_ping: a restarted server must cost one retry inside the pool, not a failed request.
    return create_engine(
        parsed,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=busy_seconds,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": max(2, int(busy_seconds)),
            **{name: value for name, value in POSTGRES_LIVENESS.items() if name not in parsed.query},
            **_statement_timeout(parsed, statement_seconds),
        },
    )


def _statement_timeout(url: URL, seconds: float | None) -> dict[str, str]:
    if seconds is None:
        return {}
    said = url.query.get("options", "")
    said = said if isinstance(said, str) else " ".join(said)
    return {"options": f"{said} -c statement_timeout={int(seconds * 1000)}".strip()}


def _sqlite(url: str, busy_seconds: float) -> Engine:
    database = make_url(url).database
    if database and database != ":memory:":
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": busy_seconds, "check_same_thread": False})

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
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


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
