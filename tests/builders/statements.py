"""Which SQL statements a block of a test sends."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from app.database.engine import Database


@contextmanager
def statements(db: Database, *, of_writers: bool = False) -> Iterator[list[str]]:
    """The list fills while the block runs; ``of_writers``: only with what is sent in a transaction that may write."""
    sent: list[str] = []

    def note(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if of_writers and not connection.get_execution_options().get("writes"):
            return
        if not statement.startswith(("BEGIN", "PRAGMA")):
            sent.append(statement)

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
