"""What Alembic runs: it is handed an open connection by app.migrations.runner and never opens one itself."""

from typing import Literal

from alembic import context
from sqlalchemy import Connection

from app.models import Base
from app.models.base import JsonColumn, UtcDateTime


def render_item(kind: str, item: object, _context: object) -> str | Literal[False]:
    """Revisions hold plain types: they must mean the same when the models have moved on."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and item is JsonColumn:
        return "JSON"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_item=render_item,
        compare_type=True,
        # SQLite can't alter most things of a table: Alembic then copies it.
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
