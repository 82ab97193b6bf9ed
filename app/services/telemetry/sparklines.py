"""A few values of metrics over all steps, for curves as small as a word: found by index, whatever their length."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    FromClause,
    Integer,
    Select,
    String,
    Subquery,
    and_,
    bindparam,
    cast,
    column,
    func,
    select,
    true,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app.domain.json_numbers import number_of
from app.models import Metric


@dataclass(frozen=True, kw_only=True)
class Series:
    """A metric of a job, which has reported up to ``last_step``."""

    job_id: str
    name: str
    last_step: int


def sampled(session: Session, wanted: Sequence[Series], *, points: int) -> list[list[float]]:
    """Of each series at most this many values, at steps evenly spread; between them, spikes are missed.

    One query for all of them.
    """
    found: list[list[float]] = [[] for _ in wanted]
    if wanted:
        dialect = session.get_bind().dialect.name
        rows = [(place, each.job_id, each.name, each.last_step) for place, each in enumerate(wanted)]
        for place, value, special in session.execute(_query(dialect, points), _parameters(dialect, rows)):
            found[place].append(number_of(value, special))
    return found


@cache
def _query(dialect: str, points: int) -> Select[Any]:
    asked = _asked(dialect, points).c
    of_it = and_(Metric.job_id == asked.job_id, Metric.name == asked.name)
    nearest = select(func.max(Metric.step)).where(of_it, Metric.step <= asked.step).scalar_subquery()
    found = select(asked.place, asked.job_id, asked.name, nearest.label("step")).distinct().subquery().c
    same = and_(Metric.job_id == found.job_id, Metric.name == found.name, Metric.step == found.step)
    return select(found.place, Metric.value, Metric.special).where(same).order_by(found.place, Metric.step)


def _asked(dialect: str, points: int) -> Subquery:
    """The series as rows, each once for every step asked of it: the database makes them, which costs us nothing."""
    columns = {"place": Integer, "job_id": String, "name": String, "last_step": Integer}
    number = column("value", Integer)
    if dialect == "postgresql":
        given: list[Any] = [bindparam(name, type_=postgresql.ARRAY(kind)) for name, kind in columns.items()]
        series: FromClause = func.unnest(*given).table_valued(*columns).render_derived()
        numbers: Any = func.generate_series(0, points - 1).table_valued(number).render_derived()
    else:
        each = func.json_each(bindparam("rows", type_=String)).table_valued("value").c.value
        parts: Iterator[Any] = (
            func.json_extract(each, f"$[{i}]", type_=kind).label(name) for i, (name, kind) in enumerate(columns.items())
        )
        series = select(*parts).subquery()
        numbers = func.json_each(json.dumps(list(range(points)))).table_valued(number)
    last = cast(series.c.last_step, BigInteger)
    # The nearest whole step, by whole numbers alone.
    step = cast((2 * last * numbers.c.value + points - 1) // (2 * (points - 1)), Integer).label("step")
    crossed = series.join(numbers, true())
    return select(series.c.place, series.c.job_id, series.c.name, step).select_from(crossed).subquery()


def _parameters(dialect: str, rows: Sequence[tuple[int, str, str, int]]) -> dict[str, Any]:
    if dialect == "postgresql":
        names = "place", "job_id", "name", "last_step"
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return {"rows": json.dumps(rows)}
