"""Opens the configured database: the one place that turns its settings into an engine."""

from app.database.engine import Database, make_engine
from config.settings import DatabaseSettings


def open_database(settings: DatabaseSettings) -> Database:
    """Bound; nothing connects yet. Whoever opens it closes it."""
    engine = make_engine(settings.url, busy_seconds=settings.busy_seconds, pool_size=settings.pool_size)
    return Database().bind(engine)
