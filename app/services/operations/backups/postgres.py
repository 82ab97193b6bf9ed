"""PostgreSQL: pg_dump and pg_restore with our connection, and the tables that were there kept in a schema beside."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, inspect, text
from sqlalchemy.exc import ProgrammingError

from app.migrations.versioning import VERSION_TABLE
from app.services.operations.backups.failures import BackupFailed

ASIDE = "before_"  # what schemas begin with in which tables are kept that a backup took the place of
PACKAGE = "install PostgreSQL's client programs (apt install postgresql-client), of the server's version or newer"


def backup(engine: Engine, target: Path) -> None:
    """A copy as of one moment; everybody goes on meanwhile."""
    _run(engine.url, "pg_dump", ["--format=custom", "--no-owner", "--no-privileges", f"--exclude-schema={ASIDE}*",
                                 f"--file={target}"])  # fmt: skip


def revision_of_copy(copy: Path) -> str:
    """The schema's revision of a copy that pg_restore can read. Raises BackupFailed."""
    arguments = ["--data-only", f"--table={VERSION_TABLE}", "--file=-", str(copy)]
    read = subprocess.run([_program("pg_restore"), *arguments], capture_output=True, text=True, check=False)
    found = re.search(rf"^COPY \S*{VERSION_TABLE} .*\n(\w+)$", read.stdout, re.MULTILINE)
    if read.returncode or found is None:
        why = _last_line(read.stderr) if read.returncode else "it holds no tables of ours"
        raise BackupFailed(f"{copy} is no backup of a Trainyard database in PostgreSQL: {why}")
    return found[1]


def put_back(engine: Engine, copy: Path, *, stamp: str) -> str:
    """The copy's tables take the place of those that are there; the schema in which these lie then, if any.

    All or nothing: when pg_restore fails, everything is as it was.
    """
    aside = f"{ASIDE}{stamp}"
    with engine.begin() as connection:
        _refuse_others(connection)
        here = str(inspect(connection).default_schema_name)
        moved = _move_tables(connection, here, aside)
    try:
        _run(engine.url, "pg_restore", ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error",
                                        str(copy)])  # fmt: skip
    except BackupFailed:
        if moved:
            with engine.begin() as connection:
                _move_tables(connection, aside, here)
                connection.execute(text(f'DROP SCHEMA "{aside}"'))
        raise
    return aside if moved else ""


def _refuse_others(connection: Connection) -> None:
    others = connection.execute(
        text(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
    ).scalar_one()
    if others:
        raise BackupFailed(
            f"{others} other connection(s) use the database: stop API, coordinators, nodes and what else does, "
            "and try again"
        )


def _move_tables(connection: Connection, source: str, target: str) -> list[str]:
    tables = inspect(connection).get_table_names(schema=source)
    try:
        if tables:
            connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{target}"'))
        for table in tables:
            connection.execute(text(f'ALTER TABLE "{source}"."{table}" SET SCHEMA "{target}"'))
    except ProgrammingError as error:
        raise BackupFailed(f"the tables can't be set aside: {error.orig}; restore as the database's owner") from error
    return tables


def _run(url: URL, name: str, arguments: Sequence[str]) -> None:
    command = [_program(name), "--no-password", f"--dbname={_dsn(url)}", *arguments]
    done = subprocess.run(command, env=_environment(url), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackupFailed(f"{name} failed: {_last_line(done.stderr)}")


def _dsn(url: URL) -> str:
    """Without the password: command lines are visible to everybody on the machine."""
    return url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)


def _environment(url: URL) -> dict[str, str]:
    # Nothing else of ours: the programs need their libraries' paths at most.
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "PGPASSWORD": url.password or ""}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BackupFailed(f"there is no {name} here: {PACKAGE}")
    return found


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1][:500] if lines else "it did not say why"
