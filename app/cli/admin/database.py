"""What the administrator's commands share: the configured database, and failures as one line instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy.exc import SQLAlchemyError

from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.errors import TrainyardError
from app.migrations.versioning import HEAD, is_current
from config.settings import Settings, SettingsError, load_settings


def cli_settings() -> Settings:
    """The environment's settings, or every problem with them."""
    try:
        return load_settings()
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def admin_database() -> Iterator[Database]:
    """The database of TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL; it must have been prepared."""
    settings = cli_settings()
    with failures_as_messages():
        db = open_database(settings.database)
        try:
            if not (_exists(db) and is_current(db.engine)):
                raise click.ClickException(
                    f"{db.engine.url.render_as_string(hide_password=True)} is no database at revision {HEAD}: run "
                    "`trainyard db init`, or name another one with TRAINYARD_DATA_DIR or TRAINYARD_DATABASE_URL"
                )
            yield db
        finally:
            db.close()


def _exists(db: Database) -> bool:
    # Asking SQLite would make an empty file of the misspelt name.
    path = db.engine.url.database
    return db.engine.dialect.name != "sqlite" or path in (None, ":memory:") or Path(str(path)).exists()


@contextmanager
def failures_as_messages() -> Iterator[None]:
    """What we refuse, or a database that does not answer, is told in a line."""
    try:
        yield
    except TrainyardError as error:
        raise click.ClickException(error.message) from error
    except SQLAlchemyError as error:
        raise click.ClickException(f"the database does not answer: {getattr(error, 'orig', None) or error}") from error
