"""A backup of the configured database, whichever it is, and putting one back."""

import importlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from app.database.engine import Database
from app.database.from_settings import open_database
from app.migrations.versioning import HEAD
from app.services.operations.backups import after_restore, postgres, sqlite
from app.services.operations.backups.failures import BackupFailed
from config.settings import DatabaseSettings


@dataclass(frozen=True, kw_only=True)
class Restored:
    """``aside``: the file or schema in which what was there before lies now; empty when nothing was."""

    revision: str
    requeued_jobs: int
    aside: str


def backup(db: Database, target: Path) -> int:
    """Write a copy of the database into a file that only its owner may read; returns its size. Raises BackupFailed."""
    if target.exists():
        raise BackupFailed(f"{target} exists already; backups are not overwritten, name another file")
    temporary = target.with_name(f".{target.name}.incomplete")
    path = sqlite_path(db)
    try:
        temporary.unlink(missing_ok=True)
        temporary.touch(0o600)  # before anything is in it
        if path is not None:
            sqlite.backup(path, temporary)
            sqlite.revision_of_copy(temporary)
        else:
            postgres.backup(db.engine, temporary)
            postgres.revision_of_copy(temporary)
        temporary.rename(target)
    except OSError as error:
        raise BackupFailed(f"{target} can't be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target.stat().st_size


def restore(settings: DatabaseSettings, copy: Path, *, actor: str, now: datetime) -> Restored:
    """Put a backup in the place of the database, while nothing of ours runs. Raises BackupFailed."""
    db = open_database(settings)
    path = sqlite_path(db)
    try:
        revision = sqlite.revision_of_copy(copy) if path is not None else postgres.revision_of_copy(copy)
        _refuse_newer(revision)
        stamp = f"{now:%Y%m%d_%H%M%S_%f}"[:-3]
        if path is not None:
            aside = sqlite.put_back(copy, path, stamp=stamp)
        else:
            aside = postgres.put_back(db.engine, copy, stamp=stamp)
        requeued = _settle(db, revision, actor=actor)
    finally:
        db.close()
    return Restored(revision=HEAD, requeued_jobs=requeued, aside=aside)


def sqlite_path(db: Database) -> Path | None:
    """The file of a database in SQLite; None for PostgreSQL."""
    database = db.engine.url.database
    return Path(database) if db.engine.dialect.name == "sqlite" and database else None


def _settle(db: Database, revision: str, *, actor: str) -> int:
    """Settling speaks of tables and columns as they are now."""
    if revision != HEAD:
        importlib.import_module("app.migrations.runner").upgrade(db.engine)
    return after_restore.settle(db, actor=actor)


def _refuse_newer(revision: str) -> None:
    if revision > HEAD:
        raise BackupFailed(
            f"the backup is at revision {revision}, which this version of Trainyard (revision {HEAD}) does not know: "
            "install the version that it was made with, or a newer one"
        )
