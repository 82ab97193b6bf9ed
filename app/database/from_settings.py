"""Opens the configured database."""

from app.database.engine import Database, make_engine
from config.settings import DatabaseSettings


def open_database(settings: DatabaseSettings) -> Database:
    """A bound database without connections; the caller closes it."""
    engine = make_engine(settings.url, busy_seconds=settings.busy_seconds, pool_size=settings.pool_size)
    return Database().bind(engine)
