"""A few values of a metric over all its steps, for curves as small as a word: found by index, whatever its length."""

import json
from collections.abc import Sequence

from sqlalchemy import Integer, Subquery, bindparam, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app.domain.json_numbers import number_of
from app.models import Metric


def sampled(session: Session, job_id: str, name: str, *, last_step: int, points: int) -> list[float]:
    """At most this many values, at steps evenly spread up to ``last_step``; between them, spikes are missed."""
    steps = sorted({round(last_step * i / (points - 1)) for i in range(points)})
    wanted = _as_rows(session, steps)
    of_it = (Metric.job_id == job_id, Metric.name == name)
    nearest = select(func.max(Metric.step)).where(*of_it, Metric.step <= wanted.c.value).scalar_subquery()
    found = select(nearest.label("step")).select_from(wanted)
    query = select(Metric.value, Metric.special).where(*of_it, Metric.step.in_(found)).order_by(Metric.step)
    return [number_of(value, special) for value, special in session.execute(query)]


def _as_rows(session: Session, numbers: Sequence[int]) -> Subquery:
    """The numbers as rows, with one parameter."""
    if session.get_bind().dialect.name == "postgresql":
        given = bindparam("steps", numbers, postgresql.ARRAY(Integer))
        return select(func.unnest(given).label("value")).subquery()
    return select(func.json_each(json.dumps(list(numbers))).table_valued("value").c.value.label("value")).subquery()
