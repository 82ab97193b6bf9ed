"""Shared by the administrator commands: the configured database, and errors as one line instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.domain.errors import TrainyardError
from app.host.imports import uncollected_imports

if TYPE_CHECKING:
    from app.database.engine import Database
    from config.settings import Settings


def cli_settings() -> "Settings":
    """The settings from the environment. Raises ClickException listing every invalid one."""
    from config.settings import SettingsError, load_settings

    try:
        return load_settings()
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def admin_database() -> "Iterator[Database]":
    """The database of TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL. Raises ClickException unless it is initialized."""
    with uncollected_imports():
        from app.database.from_settings import open_database
        from app.migrations.versioning import HEAD, is_current

    settings = cli_settings()
    with failures_as_messages():
        db = open_database(settings.database)
        try:
            if not (_exists(db) and is_current(db.engine)):
                raise click.ClickException(
                    f"{db.engine.url.render_as_string(hide_password=True)} is not a database at revision {HEAD}: run "
                    "`trainyard db init`, or name another one with TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL"
                )
            yield db
        finally:
            db.close()


def _exists(db: "Database") -> bool:
    # Connecting would create an empty SQLite file under a misspelt name.
    path = db.engine.url.database
    return db.engine.dialect.name != "sqlite" or path in (None, ":memory:") or Path(str(path)).exists()


@contextmanager
def failures_as_messages() -> Iterator[None]:
    """Prints Trainyard's own errors and database errors as one line instead of a traceback."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except TrainyardError as error:
        raise click.ClickException(error.message) from error
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database does not answer: {getattr(error, 'orig', None) or error}") from error
