"""Which revision a database is at, asked by plain SQL: an ordinary start must not pay for importing Alembic."""

import time

from sqlalchemy import Connection, Engine, inspect, text

from app.domain.errors import Unavailable

HEAD = "0050"
VERSION_TABLE = "alembic_version"
POLL_SECONDS = 0.05


class SchemaNotReady(Unavailable):
    """The database has no schema yet, or one of another version of Trainyard."""


def is_current(engine: Engine) -> bool:
    """Whether the database has exactly the schema that this code was written for."""
    with engine.connect() as connection:
        return revision_of(connection) == HEAD


def revision_of(connection: Connection) -> str | None:
    """The database's revision; None for a database that has never been migrated."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 – a constant


def wait_until_current(engine: Engine, *, seconds: float = 60.0) -> None:
    """Return once the schema is there; processes start together, and one of them is making it.

    Raises SchemaNotReady after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not is_current(engine):
        if time.monotonic() > deadline:
            raise SchemaNotReady(
                f"the database's schema is not at revision {HEAD} after {seconds:g} s: run `trainyard db upgrade`"
            )
        time.sleep(POLL_SECONDS)
