"""PostgreSQL backups by pg_dump and pg_restore; a restore moves the previous tables into another schema."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, inspect, text
from sqlalchemy.exc import ProgrammingError

from app.migrations.versioning import VERSION_TABLE
from app.services.operations.backups.failures import BackupFailed

ASIDE = "before_"  # prefix of schemas that hold tables replaced by a restore
PACKAGE = "install PostgreSQL's client programs (apt install postgresql-client), of the server's version or newer"


def backup(engine: Engine, target: Path) -> None:
    """Write a consistent snapshot without blocking other connections."""
    _run(
        engine.url,
        "pg_dump",
        ["--format=custom", "--no-owner", "--no-privileges", f"--exclude-schema={ASIDE}*", f"--file={target}"],
    )


def revision_of_copy(copy: Path) -> str:
    """The schema revision of a backup. Raises BackupFailed if pg_restore can't read it."""
    arguments = ["--data-only", f"--table={VERSION_TABLE}", "--file=-", str(copy)]
    read = subprocess.run([_program("pg_restore"), *arguments], capture_output=True, text=True, check=False)
    found = re.search(rf"^COPY \S*{VERSION_TABLE} .*\n(\w+)$", read.stdout, re.MULTILINE)
    if read.returncode or found is None:
        why = _last_line(read.stderr) if read.returncode else "it contains no Trainyard tables"
        raise BackupFailed(f"{copy} is not a backup of a Trainyard database in PostgreSQL: {why}")
    return found[1]


def put_back(engine: Engine, copy: Path, *, stamp: str) -> str:
    """Replace the current tables with the backup's; returns the schema that holds the previous ones, if any.

    If pg_restore fails, the previous tables are moved back.
    """
    aside = f"{ASIDE}{stamp}"
    with engine.begin() as connection:
        _refuse_others(connection)
        here = str(inspect(connection).default_schema_name)
        moved = _move_tables(connection, here, aside)
    try:
        _run(
            engine.url,
            "pg_restore",
            ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", str(copy)],
        )
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
            f"{others} other connection(s) use the database: stop the API, coordinators, nodes and other clients, "
            "then retry"
        )


def _move_tables(connection: Connection, source: str, target: str) -> list[str]:
    tables = inspect(connection).get_table_names(schema=source)
    try:
        if tables:
            connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{target}"'))
        for table in tables:
            connection.execute(text(f'ALTER TABLE "{source}"."{table}" SET SCHEMA "{target}"'))
        for function in _functions_of_triggers(connection, target):
            connection.execute(text(f'ALTER FUNCTION "{source}"."{function}"() SET SCHEMA "{target}"'))
    except ProgrammingError as error:
        raise BackupFailed(f"the tables can't be moved aside: {error.orig}; restore as the database's owner") from error
    return tables


def _functions_of_triggers(connection: Connection, schema: str) -> list[str]:
    """The functions that triggers on the schema's tables call, where they are in another schema."""
    found = connection.execute(
        text(
            "SELECT DISTINCT p.proname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "JOIN pg_proc p ON p.oid = t.tgfoid "
            "WHERE NOT t.tgisinternal AND c.relnamespace = :there ::regnamespace AND p.pronamespace <> c.relnamespace"
        ),
        {"there": schema},
    )
    return list(found.scalars())


def _run(url: URL, name: str, arguments: Sequence[str]) -> None:
    command = [_program(name), "--no-password", f"--dbname={_dsn(url)}", *arguments]
    done = subprocess.run(command, env=_environment(url), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackupFailed(f"{name} failed: {_last_line(done.stderr)}")


def _dsn(url: URL) -> str:
    """The connection string without the password: command lines are visible to every user of the machine."""
    return url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)


def _environment(url: URL) -> dict[str, str]:
    # No other variables of this process.
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "PGPASSWORD": url.password or ""}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BackupFailed(f"{name} is not installed: {PACKAGE}")
    return found


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:500] if lines else "it reported no reason"
