"""Summaries of long metric series: maintained by the writer of the points, read instead of the points.

Level 1 has a row per 16 points, level 2 one per 16 of those rows, and so on: a tenth more rows, each written once. The
newest points have none yet. A level has no gaps: it is built from its start, and truncated where a step is repeated.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam, case, delete, func, insert, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.downsampling import FAN_OUT, LEVELS, Point, Span, merged, selected_steps, span_of, spans_of
from app.domain.errors import LeaseLost
from app.domain.lifecycle.states import HELD
from app.models import Job
from app.models.base import Base

_METRIC = Base.metadata.tables["metric"]  # without the ORM: there may be a million points
_SUMMARY = Base.metadata.tables["metric_summary"]
# NaN has no order; here it is the largest value, above infinity, so that such a point is never dropped.
ORDER = func.coalesce(
    _METRIC.c.value,
    case(
        (_METRIC.c.special == "-Infinity", -math.inf),
        (_METRIC.c.special == "Infinity", sys.float_info.max),
        else_=math.inf,
    ),
)
DUE = FAN_OUT**2  # number of new points of a series that triggers a write
_POINTS_AT_ONCE = 4096  # keeps transactions short, even after an attempt that left many points unsummarised

LAST_STEP = 2**31 - 1  # the greatest that the database stores
# Statements of reads are built once: a comparison has hundreds of them, and building one takes as long as running it.
_INSIDE = (
    _SUMMARY.c.job_id == bindparam("job_id"),
    _SUMMARY.c.name == bindparam("name"),
    _SUMMARY.c.level == bindparam("level"),
    _SUMMARY.c.first_step > bindparam("since"),
    _SUMMARY.c.last_step <= bindparam("to"),
)
_COUNT = select(func.count()).select_from(_SUMMARY).where(*_INSIDE)
_ROWS = select(*(_SUMMARY.c[field] for field in Span._fields)).where(*_INSIDE).order_by(_SUMMARY.c.first_step)
POINTS_INSIDE = (
    _METRIC.c.job_id == bindparam("job_id"),
    _METRIC.c.name == bindparam("name"),
    _METRIC.c.step > bindparam("since"),
    _METRIC.c.step <= bindparam("to"),
)
_POINTS = select(_METRIC.c.step, ORDER).where(*POINTS_INSIDE).order_by(_METRIC.c.step)


class StepRange(NamedTuple):
    """Steps above ``since``, up to ``to``."""

    since: int = -1
    to: int = LAST_STEP


ALL_STEPS = StepRange()


class SummaryCount:
    """Counts the new points of a running job's series, to decide which to summarise."""

    def __init__(self) -> None:
        self._new: dict[str, int] = {}
        self._newest: dict[str, int] = {}

    def add(self, points: Iterable[tuple[str, int]]) -> None:
        """Count stored points, given as (name, step)."""
        for name, step in points:
            self._new[name] = self._new.get(name, 0) + 1
            self._newest[name] = max(step, self._newest.get(name, step))

    def due(self) -> dict[str, int]:
        """Due series → newest step since the last summary."""
        return {name: self._newest[name] for name, count in self._new.items() if count >= DUE}

    def done(self, names: Iterable[str]) -> None:
        for name in names:
            self._new.pop(name, None)
            self._newest.pop(name, None)


def extend(db: Database, *, job_id: str, fence: int, newest: Mapping[str, int]) -> None:
    """Summarise the points below the newest step of each series, which may still be replaced. Raises LeaseLost.

    Points of an earlier attempt above that step will be repeated, and are ignored.
    """
    with db.write() as session:
        reached = max(newest.values())
        known = func.coalesce(Job.metric_summary_step, -1)
        held = session.scalar(
            update(Job)
            .where(Job.id == job_id, Job.fence == fence, Job.status.in_(HELD))
            .values(metric_summary_step=case((known > reached, known), else_=reached))
            .returning(Job.id)
            .execution_options(synchronize_session=False)
        )
        if held is None:
            raise LeaseLost(f"reports on job {job_id} are no longer accepted from this attempt")
        for name, step in newest.items():
            _extend_series(session, job_id, name, step)


def forget(session: Session, job_id: str, steps: Mapping[str, int]) -> None:
    """Drop the summaries of each series from a step on that is being repeated."""
    for name, step in steps.items():
        for level in range(1, LEVELS + 1):
            of_it = _of(job_id, name, level)
            containing = select(func.max(_SUMMARY.c.first_step)).where(*of_it, _SUMMARY.c.first_step <= step)
            begin = func.coalesce(containing.scalar_subquery(), step)
            session.execute(
                delete(_SUMMARY).where(*of_it, _SUMMARY.c.first_step >= begin, _SUMMARY.c.last_step >= step)
            )


def thinned_steps(session: Session, job_id: str, name: str, within: StepRange, *, most: int) -> list[int] | None:
    """Steps of the points that remain after down-sampling to ``most``; None when there are too few summaries."""
    for level in range(LEVELS, 0, -1):
        count = session.scalar(_COUNT, {"job_id": job_id, "name": name, "level": level, **within._asdict()}) or 0
        # Half of the allowed points show as much, for a sixteenth of the reads.
        if count >= max(1, (most - 2) // 4):
            return selected_steps(_covering(session, job_id, name, level, within), most)
    return None


def _covering(session: Session, job_id: str, name: str, level: int, within: StepRange) -> list[Span]:
    """Rows of a level in a range; the points before and after them are summarised on the fly."""
    rows = _rows(session, job_id, name, level, within)
    size = FAN_OUT**level
    before = _points(session, job_id, name, within._replace(to=rows[0].first_step - 1))
    behind = _points(session, job_id, name, within._replace(since=rows[-1].last_step))
    return [*spans_of(before, size), *rows, *spans_of(behind, size)]


def _extend_series(session: Session, job_id: str, name: str, below_step: int) -> None:
    last = _last_step(session, job_id, name, 1)
    points = _points(session, job_id, name, StepRange(last, below_step - 1), limit=_POINTS_AT_ONCE)
    _add(session, job_id, name, 1, [span_of(group) for group in _whole_groups(points)])
    for level in range(2, LEVELS + 1):
        rows = _rows(session, job_id, name, level - 1, StepRange(_last_step(session, job_id, name, level)))
        _add(session, job_id, name, level, [merged(group) for group in _whole_groups(rows)])


def _add(session: Session, job_id: str, name: str, level: int, spans: Sequence[Span]) -> None:
    if spans:
        session.execute(
            insert(_SUMMARY), [{"job_id": job_id, "name": name, "level": level, **s._asdict()} for s in spans]
        )


def _rows(session: Session, job_id: str, name: str, level: int, within: StepRange = ALL_STEPS) -> list[Span]:
    values = {"job_id": job_id, "name": name, "level": level, **within._asdict()}
    return [Span(*row) for row in session.execute(_ROWS, values).all()]


def _last_step(session: Session, job_id: str, name: str, level: int) -> int:
    query = select(_SUMMARY.c.last_step).where(*_of(job_id, name, level))
    last = session.scalar(query.order_by(_SUMMARY.c.first_step.desc()).limit(1))
    return -1 if last is None else last


def _points(
    session: Session, job_id: str, name: str, within: StepRange, *, limit: int | None = None
) -> Sequence[Point]:
    query = _POINTS if limit is None else _POINTS.limit(limit)
    found = session.execute(query, {"job_id": job_id, "name": name, **within._asdict()})
    return [(step, value) for step, value in found.all()]


def _of(job_id: str, name: str, level: int) -> tuple[ColumnElement[bool], ...]:
    return _SUMMARY.c.job_id == job_id, _SUMMARY.c.name == name, _SUMMARY.c.level == level


def _whole_groups(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[i : i + FAN_OUT] for i in range(0, len(items) - FAN_OUT + 1, FAN_OUT)]
