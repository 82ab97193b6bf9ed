"""Which errors of the database pass by themselves, and which would come again for ever."""

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.database.engine import is_read_only


def passes(error: Exception) -> bool:
    """Whether it makes sense to do the same again: the database was away, locked or busy.

    Otherwise the data itself is refused; whoever holds it must drop it, or it blocks all that follows.
    """
    if isinstance(error, DBAPIError) and (error.connection_invalidated or is_read_only(error)):
        return True
    if isinstance(error, SQLAlchemyError):
        return isinstance(error, OperationalError | InterfaceError | PoolTimeout)
    return isinstance(error, OSError)
