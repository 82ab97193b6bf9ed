"""Classification of database errors into transient and permanent ones."""

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.database.engine import is_read_only


def is_transient(error: Exception) -> bool:
    """Whether a retry makes sense: the database was unavailable, locked or busy.

    Otherwise the data itself is refused; the caller must drop it, or it blocks everything after it.
    """
    if isinstance(error, DBAPIError) and (error.connection_invalidated or is_read_only(error)):
        return True
    if isinstance(error, SQLAlchemyError):
        return isinstance(error, OperationalError | InterfaceError | PoolTimeout)
    return isinstance(error, OSError)
