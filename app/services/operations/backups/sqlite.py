"""SQLite backups by the online backup API, and restoring one while no process has the database open."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from app.migrations.versioning import VERSION_TABLE
from app.services.operations.backups.failures import BackupFailed
from trainyard.protocol.durability import sync

LOCKED_SECONDS = 1.0


def backup(database: Path, target: Path) -> None:
    """Write a consistent snapshot without blocking writers."""
    with closing(_reading(database)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")  # a single file without a write-ahead log
    sync(target)


def revision_of_copy(copy: Path) -> str:
    """The schema revision of a backup. Raises BackupFailed if it is damaged."""
    try:
        with closing(_reading(copy)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchone()[0]
            if found != "ok":
                raise BackupFailed(f"{copy} is damaged ({found}); take an older backup")
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608 – a constant
    except sqlite3.DatabaseError as error:
        raise BackupFailed(f"{copy} is not a backup of a Trainyard database in SQLite: {error}") from error
    return str(row[0]) if row else ""


def put_back(copy: Path, database: Path, *, stamp: str) -> str:
    """Replace the database with the backup; returns the file that holds the previous one, or an empty text."""
    aside = database.with_name(f"{database.name}.before_{stamp}")
    temporary = database.with_name(f".{database.name}.restoring")
    existed = database.exists()
    if existed:
        _require_unused(database)
    temporary.unlink(missing_ok=True)
    with closing(_reading(copy)) as source, closing(sqlite3.connect(temporary)) as target:
        temporary.chmod(0o600)
        source.backup(target)
    sync(temporary)
    # A write-ahead log left by a damaged database must not be applied to the restored one.
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            database.with_name(f"{database.name}{suffix}").rename(f"{aside}{suffix}")
    temporary.rename(database)
    sync(database.parent)
    return str(aside) if existed else ""


def _require_unused(database: Path) -> None:
    """Switch the write-ahead log off, which fails while another process has the database open."""
    try:
        with closing(sqlite3.connect(database, timeout=LOCKED_SECONDS)) as connection:
            mode = connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0]
    except sqlite3.OperationalError as error:
        raise BackupFailed(
            f"{database} is in use: stop `trainyard up`, or the API, coordinators and nodes, then retry"
        ) from error
    except sqlite3.DatabaseError:
        return  # damaged, which is why it is being restored; it is still moved aside
    if mode != "delete":
        raise BackupFailed(f"{database} is in use ({mode}); stop every process that uses it, then retry")


def _reading(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise BackupFailed(f"there is no file {path}")
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
