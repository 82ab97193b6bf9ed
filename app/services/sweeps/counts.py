"""What suggestions and decisions of a project's sweeps took, and the device time that was spared.

Written in the transaction of what they count, by `add` as its last statement: the rows are those of a whole project.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.models import SweepCount

BOUNDS_MS = (10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
BEYOND = 0


class Kind(StrEnum):
    SUGGESTION = "suggestion"  # seconds until a method had answered
    DECISION = "decision"  # seconds from a measurement at a rung to what follows from it
    BY_STOPPING = "by_stopping"  # device seconds
    BY_TRUNKS = "by_trunks"


IN_BUCKETS = (Kind.SUGGESTION, Kind.DECISION)


def add(session: Session, project: str, found: Mapping[Kind, Sequence[float]]) -> None:
    """Count these seconds of each kind."""
    buckets: dict[tuple[Kind, int], list[float]] = {}
    for kind, seconds in found.items():
        for each in seconds:
            buckets.setdefault((kind, _bucket(each) if kind in IN_BUCKETS else BEYOND), []).append(each)
    if not buckets:
        return
    connection = session.connection()
    added = _ADDED[connection.dialect.name]
    for (kind, up_to_ms), those in sorted(buckets.items()):
        row = {"project": project, "kind": kind, "up_to_ms": up_to_ms, "count": len(those), "seconds": math.fsum(those)}
        connection.execute(added, row)


def bound_of(up_to_ms: int) -> float:
    """Upper bound of a bucket, in seconds."""
    return math.inf if up_to_ms == BEYOND else up_to_ms / 1000


def _added(insert: Any) -> Insert:  # noqa: ANN401  that of a dialect
    new = insert(SweepCount)
    more = {name: getattr(SweepCount, name) + getattr(new.excluded, name) for name in ("count", "seconds")}
    made: Insert = new.on_conflict_do_update(index_elements=["project", "kind", "up_to_ms"], set_=more)
    return made


# Made once: to build such a statement takes as long as to execute it.
_ADDED = {"postgresql": _added(postgresql.insert), "sqlite": _added(sqlite.insert)}


def _bucket(seconds: float) -> int:
    return next((bound for bound in BOUNDS_MS if seconds <= bound / 1000), BEYOND)
