"""Backup and restore of the configured database, SQLite or PostgreSQL."""

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
    """``aside``: the file or schema that now holds the previous database; empty if there was none."""

    revision: str
    requeued_jobs: int
    aside: str


def backup(db: Database, target: Path) -> int:
    """Write a copy of the database to a file readable only by its owner; returns its size. Raises BackupFailed."""
    if target.exists():
        raise BackupFailed(f"{target} already exists; backups are not overwritten, choose another file")
    temporary = target.with_name(f".{target.name}.incomplete")
    path = sqlite_path(db)
    try:
        temporary.unlink(missing_ok=True)
        temporary.touch(0o600)  # before writing data
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
    """Replace the database with a backup while no process runs. Raises BackupFailed."""
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
    """The file of an SQLite database; None for PostgreSQL."""
    database = db.engine.url.database
    return Path(database) if db.engine.dialect.name == "sqlite" and database else None


def _settle(db: Database, revision: str, *, actor: str) -> int:
    """Upgrade the schema, which the models of ``after_restore`` require, then reconcile."""
    if revision != HEAD:
        importlib.import_module("app.migrations.runner").upgrade(db.engine)
    return after_restore.settle(db, actor=actor)


def _refuse_newer(revision: str) -> None:
    if revision > HEAD:
        raise BackupFailed(
            f"the backup is at revision {revision}, newer than this version of Trainyard (revision {HEAD}): "
            "install the version that created it, or a newer one"
        )
