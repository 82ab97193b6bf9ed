"""Runs Alembic on an engine: up, down, and a new revision for developers. Slow to import, hence a module of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, text

from app.migrations.versioning import HEAD, SchemaNotReady, revision_of

# Held while migrating PostgreSQL, so that processes that start together don't do it twice; any constant serves.
ADVISORY_LOCK = 0x7472_6169_6E79


def upgrade(engine: Engine, revision: str = HEAD) -> None:
    """Bring the schema up to a revision. Several processes may do it at once: the later ones find it done."""
    _migrate(engine, lambda config: command.upgrade(config, revision))


def downgrade(engine: Engine, revision: str) -> None:
    """Take the schema back; ``base`` removes every table."""
    _migrate(engine, lambda config: command.downgrade(config, revision))


def new_revision(engine: Engine, message: str, *, number: str) -> None:
    """Write ``versions/<number>_<message>.py`` from the difference between models and database."""
    _migrate(engine, lambda config: command.revision(config, message, autogenerate=True, rev_id=number))


def scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _migrate(engine: Engine, step: Callable[[Config], Any]) -> None:
    with _exclusive_connection(engine) as connection:
        _refuse_unknown_revision(connection)
        config = _config()
        config.attributes["connection"] = connection
        step(config)


@contextmanager
def _exclusive_connection(engine: Engine) -> Iterator[Connection]:
    """One transaction around everything, which only one process at a time can hold: all of it happens, or nothing."""
    is_sqlite = engine.dialect.name == "sqlite"
    with engine.connect().execution_options(writes=True) as connection:
        if is_sqlite:
            # Copying a table (SQLite's way to alter one) would delete what refers to it. The pragma is ignored
            # inside a transaction, so it goes to the driver before SQLAlchemy begins one.
            _driver_execute(connection, "PRAGMA foreign_keys=OFF")
        try:
            with connection.begin():
                if not is_sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
                yield connection
                if is_sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise SchemaNotReady("the migration would leave rows that refer to nothing; nothing was changed")
        finally:
            if is_sqlite:
                _driver_execute(connection, "PRAGMA foreign_keys=ON")


def _driver_execute(connection: Connection, statement: str) -> None:
    connection.connection.cursor().execute(statement)


def _refuse_unknown_revision(connection: Connection) -> None:
    revision = revision_of(connection)
    if revision is None:
        return
    try:
        scripts().get_revision(revision)
    except CommandError as error:
        raise SchemaNotReady(
            f"the database is at revision {revision}, which this version of Trainyard (revision {HEAD}) does not know: "
            "it was written by a newer version; install that one"
        ) from error


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
