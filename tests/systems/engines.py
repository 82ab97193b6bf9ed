"""Engines on databases of tests: each is new, but it starts with what an earlier one has learned and opened.

An earlier one has compiled the same statements, asked the server the same questions, and opened a connection, which
costs a server as much as most tests.
"""

import select
from collections import defaultdict
from functools import partial
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.util import LRUCache

from app.database.engine import make_engine

# Databases that one test uses after the other have names with this prefix.
REUSED = "reused_"

# DISCARD ALL without the statements that the driver has prepared, which serve the next test as well.
_FORGET = (
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP"
)

# By name of the dialect. SQLAlchemy finds compiled statements by the dialect's identity.
_compiled: dict[str, tuple[Dialect, LRUCache[Any, Any]]] = {}
# By name of the database: idle connections, like new ones.
_kept: dict[str, list[psycopg.Connection]] = defaultdict(list)


def engine_on(url: str) -> Engine:
    """Like `make_engine`; a test spends a third of its time on compiling what all tests ask."""
    engine = make_engine(url)
    name = engine.dialect.name
    if name == "sqlite":
        event.listen(engine, "connect", _trust_the_machine)
    elif str(engine.url.database).startswith(REUSED):
        _keep_connections(engine, str(engine.url.database))
    if name not in _compiled:
        engine.connect().close()  # which asks the server what the dialect has to know
        _compiled[name] = engine.dialect, LRUCache(2000)
    engine.dialect.initialize = _ask_nothing  # type: ignore[assignment, method-assign]
    engine.dialect, statements = _compiled[name]
    engine.update_execution_options(compiled_cache=statements)
    return engine


def pids_of_kept_connections(database: str) -> list[int]:
    """The server's processes of idle connections, which the next test of this database may use."""
    return [connection.info.backend_pid for connection in _kept[database] if not connection.closed]


def close_kept_connections(database: str) -> None:
    for connection in _kept.pop(database, []):
        connection.close()


def _trust_the_machine(connection: Any, _record: object) -> None:
    # Only a crash of the machine could lose what is not synced, and that ends the tests.
    connection.execute("PRAGMA synchronous=OFF")


def _ask_nothing(_connection: object) -> None:
    """The dialect that replaces this one knows the answers."""


def _keep_connections(engine: Engine, database: str) -> None:
    dialect: Any = engine.dialect

    def kept(*_: object) -> psycopg.Connection | None:
        """None has SQLAlchemy open one."""
        while _kept[database]:
            connection = _kept[database].pop()
            if _is_usable(connection):
                return connection
            connection.close()
        return None

    event.listen(engine, "do_connect", kept)
    dialect.do_close = partial(_keep, database)
    dialect.do_terminate = psycopg.Connection.close


def _keep(database: str, connection: psycopg.Connection) -> None:
    try:
        if _is_usable(connection):
            _make_like_new(connection)
            _kept[database].append(connection)
            return
    except psycopg.Error:
        pass  # such as of a server that has ended meanwhile
    connection.close()


def _is_usable(connection: psycopg.Connection) -> bool:
    """Whether it is outside a transaction and the server has not closed it."""
    if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def _make_like_new(connection: psycopg.Connection) -> None:
    connection.isolation_level = connection.read_only = connection.deferrable = None
    connection.autocommit = True
    connection.execute(_FORGET)
    connection.autocommit = False
