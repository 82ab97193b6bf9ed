"""Databases that are not migrated anew: of PostgreSQL, which one test uses after the other, and of SQLite, to copy."""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from app.database.engine import make_engine
from app.migrations.runner import upgrade
from tests.systems.engines import REUSED, close_kept_connections, pids_of_kept_connections
from tests.systems.servers import PostgresServer

# Indexes keep the pages that they once had.
MOST_TESTS = 100
LOCK_SECONDS = 2

# What differs once a test has changed the schema, rights or statistics.
_SCHEMA = """
SELECT (SELECT (count(*), max(oid::bigint), sum(hashtext(relacl::text)::bigint)) FROM pg_class),
  (SELECT count(*) FROM pg_attribute), (SELECT count(*) FROM pg_statistic),
  (SELECT (count(*), max(oid::bigint)) FROM pg_namespace), (SELECT (count(*), max(oid::bigint)) FROM pg_constraint),
  (SELECT (count(*), max(oid::bigint)) FROM pg_trigger), (SELECT (count(*), max(oid::bigint)) FROM pg_proc),
  (SELECT string_agg(version_num, ' ') FROM alembic_version)
"""
_OTHERS = """
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(%s)
"""
_WITH_ROWS = """
SELECT quote_ident(relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
  AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
"""
_SEQUENCES = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence"


@dataclass
class _Reused:
    """``keeper``: the connection that empties it, idle while a test runs."""

    name: str
    keeper: psycopg.Connection
    schema: object
    tests: int = 0


class ReusedDatabases:
    """Copies of ``template`` on ``server``, each with one idle connection."""

    def __init__(self, server: PostgresServer, template: str) -> None:
        self._server, self._template = server, template
        self._free: list[_Reused] = []
        self._taken: dict[str, _Reused] = {}

    def take(self) -> str:
        """The name of one that is like the template."""
        reused = self._free.pop() if self._free else self._make()
        self._taken[reused.name] = reused
        return reused.name

    def give_back(self, name: str) -> None:
        reused = self._taken.pop(name)
        reused.tests += 1
        with contextlib.suppress(psycopg.Error):
            if reused.tests < MOST_TESTS and self._empty(reused):
                self._free.append(reused)
                return
        close_kept_connections(name)
        reused.keeper.close()
        self._server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        for reused in [*self._free, *self._taken.values()]:
            close_kept_connections(reused.name)
            reused.keeper.close()

    def _make(self) -> _Reused:
        name = f"{REUSED}{os.urandom(6).hex()}"
        self._server.clone(self._template, name)
        keeper = self._server.connect(name)
        keeper.execute(f"SET session_replication_role = replica; SET lock_timeout = '{LOCK_SECONDS}s'")
        return _Reused(name=name, keeper=keeper, schema=keeper.execute(_SCHEMA).fetchone())

    @staticmethod
    def _empty(reused: _Reused) -> bool:
        """Whether it is like the template again."""
        keeper = reused.keeper
        keeper.execute(_OTHERS, [pids_of_kept_connections(reused.name)])
        if keeper.execute(_SCHEMA).fetchone() != reused.schema:
            return False
        tables = [str(table) for (table,) in keeper.execute(_WITH_ROWS).fetchall()]
        keeper.execute("; ".join([*(f"DELETE FROM {table}" for table in tables), _SEQUENCES]).encode())
        if tables:  # rows lie in the order of their insertion only where there were none before
            keeper.execute(f"VACUUM {', '.join(tables)}".encode())
        return True


def put_migrated_sqlite(url: str) -> None:
    """Have a migrated database there, if it is one of SQLite that does not exist yet: migrations take seconds."""
    address = make_url(url)
    if address.get_backend_name() != "sqlite" or Path(address.database or "").exists():
        return
    path = Path(address.database or "")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(_migrated_sqlite())


@cache
def _migrated_sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trainyard.db"
        engine = make_engine(f"sqlite:///{path}")
        upgrade(engine)
        engine.dispose()
        return path.read_bytes()
