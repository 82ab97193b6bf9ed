"""Which of many ids a table still has."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

_MOST_PARAMETERS = 10_000  # of one query; databases limit them


def existing_in(session: Session, column: InstrumentedAttribute[Any], ids: Collection[str]) -> set[str]:
    """Those of the ids that ``column`` has."""
    wanted, found = list(ids), set[str]()
    for start in range(0, len(wanted), _MOST_PARAMETERS):
        portion = wanted[start : start + _MOST_PARAMETERS]
        found.update(session.scalars(select(column).where(column.in_(portion))))
    return found
