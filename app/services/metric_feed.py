"""New metric points in the order in which they arrive, for those who follow a job."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import literal, select, tuple_
from sqlalchemy.orm import Session

from app.models import Metric

_KEY = (Metric.attempt, Metric.at, Metric.step, Metric.name)


class Cursor(NamedTuple):
    """The last point seen. A step that is done again by a later attempt comes again, with its new value."""

    attempt: int
    at: datetime
    step: int
    name: str

    @property
    def text(self) -> str:
        return f"{self.attempt}:{round(self.at.timestamp() * 1000)}:{self.step}:{self.name}"

    @classmethod
    def of(cls, attempt: int, at_ms: int, step: int, name: str) -> "Cursor":
        at_ms = min(at_ms, 253_370_764_800_000)  # the year 9999, where datetime ends
        return cls(attempt, datetime.fromtimestamp(at_ms / 1000, UTC), step, name)


START = Cursor(0, datetime.fromtimestamp(0, UTC), 0, "")


def points_after(
    session: Session, job_id: str, cursor: Cursor, *, names: Sequence[str] = (), limit: int = 500
) -> Sequence[Metric]:
    last = tuple_(*(literal(value, column.type) for value, column in zip(cursor, _KEY, strict=True)))
    query = select(Metric).where(Metric.job_id == job_id, tuple_(*_KEY) > last)
    if names:
        query = query.where(Metric.name.in_(names))
    return session.scalars(query.order_by(*_KEY).limit(limit)).all()


def value_of(point: Metric) -> float:
    if point.special is not None:
        return float(point.special)
    return math.nan if point.value is None else point.value
