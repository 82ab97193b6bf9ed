"""The change counter of the database: one cheap question that tells whether any other question is worth asking.

Triggers raise it in the transaction of every write that a coordinator or node has to act on (``app/models/change.py``).
"""

from sqlalchemy import text

from app.database.engine import Database

_NUMBER = {
    "sqlite": text("SELECT number FROM change"),
    "postgresql": text("SELECT last_value + is_called::int FROM change_number_seq"),
}
# A writer holds this lock on the sequence from when it counts until its changes are visible, or rolled back.
_HAS_OPEN_WRITERS = text(
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' "
    "AND relation = 'change_number_seq'::regclass "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)


class ChangeCounter:
    """One reader's view of the counter. Not thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._seen: int | None = None
        self._is_settled = False

    def has_changed(self) -> bool:
        """Whether something may have changed since the last call; always so after a failed one. Raises database errors.

        A sequence counts before its transaction commits: while one that has counted is open, the answer stays True.
        So what is read after the call that returned True last has seen every change that was counted before it.
        """
        seen, self._seen = self._seen, None
        number, dialect = None, self._db.engine.dialect.name
        with self._db.query() as connection:
            number = connection.execute(_NUMBER[dialect]).scalar()
            changed = number is None or number != seen or not self._is_settled
            if changed and dialect == "postgresql":
                self._is_settled = not connection.execute(_HAS_OPEN_WRITERS).scalar_one()
            else:
                self._is_settled = True
        self._seen = number
        return changed
