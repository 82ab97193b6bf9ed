"""SQLite: a copy by its online backup, and putting one back in the place of a database that nobody has open."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from app.migrations.versioning import VERSION_TABLE
from app.services.operations.backups.failures import BackupFailed

LOCKED_SECONDS = 1.0


def backup(database: Path, target: Path) -> None:
    """A copy as of one moment; writers go on meanwhile."""
    with closing(_reading(database)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, which can be moved anywhere
    _sync(target)


def revision_of_copy(copy: Path) -> str:
    """The schema's revision of a copy that is whole. Raises BackupFailed."""
    try:
        with closing(_reading(copy)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchone()[0]
            if found != "ok":
                raise BackupFailed(f"{copy} is damaged ({found}); take an older backup")
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608 – a constant
    except sqlite3.DatabaseError as error:
        raise BackupFailed(f"{copy} is no backup of a Trainyard database in SQLite: {error}") from error
    return str(row[0]) if row else ""


def put_back(copy: Path, database: Path, *, stamp: str) -> str:
    """The copy takes the database's place; the file in which what was there lies then, if there was anything."""
    aside = database.with_name(f"{database.name}.before_{stamp}")
    temporary = database.with_name(f".{database.name}.restoring")
    existed = database.exists()
    if existed:
        _close_for_everybody(database)
    temporary.unlink(missing_ok=True)
    with closing(_reading(copy)) as source, closing(sqlite3.connect(temporary)) as target:
        temporary.chmod(0o600)
        source.backup(target)
    _sync(temporary)
    # A log that a broken database left must not be taken for the new one's.
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            database.with_name(f"{database.name}{suffix}").rename(f"{aside}{suffix}")
    temporary.rename(database)
    _sync(database.parent)
    return str(aside) if existed else ""


def _close_for_everybody(database: Path) -> None:
    """Turn the write-ahead log off, which works only while nobody else has the database open, and leaves one file."""
    try:
        with closing(sqlite3.connect(database, timeout=LOCKED_SECONDS)) as connection:
            mode = connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
    except sqlite3.OperationalError as error:
        raise BackupFailed(
            f"{database} is in use: stop `trainyard up`, or API, coordinators and nodes, and try again"
        ) from error
    except sqlite3.DatabaseError:
        return  # it is broken, which is why somebody restores; it still goes aside
    if mode != "delete":
        raise BackupFailed(f"{database} is in use ({mode}); stop everything that runs on it, and try again")


def _reading(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise BackupFailed(f"there is no file {path}")
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
