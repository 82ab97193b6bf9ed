"""Export of all rows as JSON: a consistent snapshot without secrets."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Table, select

from app.database.engine import Database
from app.domain.errors import InvalidRequest
from app.models.base import Base

# Encrypted or hashed, these are useful only to this installation; exporting them would only put them at risk.
SECRET_COLUMNS = frozenset({"secret_hash", "sealed_secret_key", "sealed_secret", "sealed_secrets"})
# Holds complete API responses, such as those with new keys.
SECRET_TABLES = frozenset({"idempotent_reply"})
ROWS_AT_ONCE = 1000


def tables() -> dict[str, Table]:
    """Tables by name, ordered so that rows follow the rows they refer to."""
    return {table.name: table for table in Base.metadata.sorted_tables if table.name not in SECRET_TABLES}


def rows(db: Database, names: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """(table, row) of these tables, or of all. Raises InvalidRequest for an unknown table."""
    known = tables()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidRequest(f"unknown table {', '.join(unknown)}; known: {', '.join(known)}")
    options = {"isolation_level": "REPEATABLE READ"} if db.engine.dialect.name == "postgresql" else {}
    with db.engine.connect().execution_options(stream_results=True, **options) as connection, connection.begin():
        for name in names or known:
            shown = [column for column in known[name].columns if column.name not in SECRET_COLUMNS]
            for row in connection.execute(select(*shown)).yield_per(ROWS_AT_ONCE).mappings():
                yield name, _plain(shown, dict(row))


def _plain(columns: Sequence[Column[Any]], row: dict[str, Any]) -> dict[str, Any]:
    values = {column.name: row[column.name] for column in columns}
    return {
        name: value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in values.items()
    }
