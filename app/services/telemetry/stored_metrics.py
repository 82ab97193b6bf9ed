"""Progress and metrics: stored in batches under the fencing token, down-sampled on read with minima and maxima."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Integer, Select, String, bindparam, func, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.downsampling import downsample
from app.domain.errors import LeaseLost
from app.domain.json_numbers import json_number, number_of
from app.domain.lifecycle.states import HELD
from app.models import Job
from app.models.base import Base, utc_now
from app.services.telemetry import summaries
from app.services.telemetry.summaries import LAST_STEP, POINTS_INSIDE, StepRange
from trainyard.protocol.messages import Progress

_METRIC = Base.metadata.tables["metric"]  # without the ORM: there may be a million points
# Larger chunks are slower: they live long enough to burden the garbage collector.
_STREAMED = {"yield_per": 2000}
# Skips from name to name by the index; grouping would read every point.
_NAMES = text("""
    WITH RECURSIVE found(name) AS (
        SELECT min(name) FROM metric WHERE job_id = :job_id
        UNION ALL
        SELECT (SELECT min(m.name) FROM metric AS m WHERE m.job_id = :job_id AND m.name > found.name)
        FROM found WHERE found.name IS NOT NULL
    ) SELECT name FROM found WHERE name IS NOT NULL
""")


# Statements of reads are built once, as in `summaries`.
_FEW = select(func.count()).select_from(
    select(_METRIC.c.step).where(*POINTS_INSIDE).limit(bindparam("most", type_=Integer)).subquery()
)
_POINTS = select(_METRIC.c.step, _METRIC.c.at, _METRIC.c.value, _METRIC.c.special).order_by(_METRIC.c.step)
_POINTS_INSIDE = _POINTS.where(*POINTS_INSIDE)


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    name: str
    step: int
    at: datetime
    value: float  # may be NaN or infinite, which users must see


@dataclass(frozen=True, kw_only=True)
class TelemetryReports:
    """Telemetry that a supervisor has collected since its last write."""

    progress: Progress | None = None
    eta_seconds: float | None = None  # at that progress; None: unknown
    points: Sequence[MetricValue] = field(default_factory=tuple)
    gpu_samples: Sequence[float] = ()  # GPU utilisation in percent, over equal intervals


@dataclass(frozen=True, kw_only=True)
class SeriesPoint:
    step: int
    at: datetime
    value: float


def store(db: Database, *, job_id: str, attempt: int, fence: int, reports: TelemetryReports) -> None:
    """Write a batch in one transaction. Points of repeated steps replace the old ones.

    Raises LeaseLost when the token is stale; nothing is written then.
    """
    # PostgreSQL refuses two points with one (name, step) in a batch: the later one wins.
    points = list({(p.name, p.step): p for p in reports.points}.values())
    with db.write() as session:
        values: dict[str, Any] = {"updated_at": utc_now(), "metric_seq": Job.metric_seq + len(points)}
        if reports.progress is not None:
            values |= _progress_columns(reports.progress, reports.eta_seconds)
        if reports.gpu_samples:
            values |= _gpu_columns(reports.gpu_samples)
        newest = {p.name: json_number(p.value) for p in sorted(points, key=lambda p: p.step)}
        if newest:
            # Locked, as `add_points` merges into it, too: the later of two writers would drop what the other added.
            before = session.scalar(select(Job.latest_metrics).where(Job.id == job_id).with_for_update()) or {}
            values["latest_metrics"] = {**before, **newest}
        # The row stays locked until the commit, so that arrival numbers become visible in order.
        row = session.execute(
            update(Job)
            .where(Job.id == job_id, Job.fence == fence, Job.status.in_(HELD))
            .values(**values)
            .returning(Job.metric_seq, Job.metric_summary_step)
            .execution_options(synchronize_session=False)
        ).one_or_none()
        if row is None:
            raise LeaseLost(f"attempt {attempt} of job {job_id} may no longer report")
        last, summarised = row
        again = _repeated_steps(points, -1 if summarised is None else summarised)
        summaries.forget(session, job_id, again)
        _upsert(session, [_row(p, job_id, attempt, last - i) for i, p in enumerate(reversed(points))])


def add_points(session: Session, job: Job, points: Sequence[MetricValue]) -> None:
    """Add points to a locked job, which may have ended; those of repeated steps replace the old ones."""
    names = [point.name for point in points]
    of_them = (_METRIC.c.job_id == job.id, _METRIC.c.name.in_(names))
    query = select(_METRIC.c.name, func.max(_METRIC.c.step)).where(*of_them).group_by(_METRIC.c.name)
    newest: dict[str, int] = {name: step for name, step in session.execute(query)}  # noqa: C416  rows are no pairs to mypy
    latest = {p.name: json_number(p.value) for p in points if p.step >= newest.get(p.name, p.step)}
    job.latest_metrics = {**job.latest_metrics, **latest}
    job.metric_seq += len(points)
    session.flush()
    summaries.forget(session, job.id, {point.name: point.step for point in points})
    _upsert(session, [_row(p, job.id, job.attempt, job.metric_seq - i) for i, p in enumerate(reversed(points))])


def series(
    session: Session,
    job_id: str,
    *,
    names: Sequence[str] = (),
    since_step: int = -1,
    to_step: int = LAST_STEP,
    max_points: int = 1000,
) -> dict[str, list[SeriesPoint]]:
    """Points per metric with a step above ``since_step`` and up to ``to_step``, at most ``max_points`` each."""
    selected = sorted(set(names)) or names_of(session, job_id)
    steps = StepRange(since_step, to_step)
    found = {name: _one_series(session, job_id, name, steps, max_points) for name in selected}
    return {name: points for name, points in found.items() if points}


def names_of(session: Session, job_id: str) -> Sequence[str]:
    """The metrics of a job that have points, by name."""
    return session.scalars(_NAMES, {"job_id": job_id}).all()


def extreme(session: Session, job_id: str, name: str, *, greatest: bool) -> float | None:
    """The greatest or the least finite value of a metric; None without any. Reads all of its points."""
    of = func.max if greatest else func.min
    # A value that is not finite is stored as NULL, which both leave out.
    query = select(of(_METRIC.c.value)).where(_METRIC.c.job_id == job_id, _METRIC.c.name == name)
    found: float | None = session.scalar(query)
    return found


def _one_series(session: Session, job_id: str, name: str, within: StepRange, max_points: int) -> list[SeriesPoint]:
    inside = {"job_id": job_id, "name": name, **within._asdict()}
    if (session.scalar(_FEW, {**inside, "most": max_points + 1}) or 0) <= max_points:
        return _read(session, _POINTS_INSIDE, inside)
    steps = summaries.thinned_steps(session, job_id, name, within, most=max_points)
    if steps is None:
        steps = _selected_steps(session, inside, max_points=max_points)
    statement, given = _points_at(session, steps)
    return _read(session, statement, {"job_id": job_id, "name": name, "steps": given})


def _repeated_steps(points: Sequence[MetricValue], summarised: int) -> dict[str, int]:
    """Series → lowest repeated step, whose summaries are outdated."""
    again: dict[str, int] = {}
    for point in points:
        if point.step <= summarised:
            again[point.name] = min(point.step, again.get(point.name, point.step))
    return again


def _gpu_columns(samples: Sequence[float]) -> dict[str, Any]:
    """Sums over all attempts, so that the mean is weighted by their runtimes."""
    return {
        "gpu_util_sum": func.coalesce(Job.gpu_util_sum, 0.0) + sum(samples),
        "gpu_util_samples": func.coalesce(Job.gpu_util_samples, 0) + len(samples),
    }


def _progress_columns(progress: Progress, eta_seconds: float | None) -> dict[str, Any]:
    total = progress.total_steps
    share = min(1.0, progress.step / total) if total else 0.0
    return {
        "current_step": progress.step,
        "total_steps": total,
        "current_epoch": progress.epoch or 0.0,
        "total_epochs": progress.total_epochs,
        "tokens": progress.tokens or 0,
        "eta_seconds": eta_seconds,
        "progress": share,
    }


def _row(point: MetricValue, job_id: str, attempt: int, seq: int) -> dict[str, Any]:
    number = json_number(point.value)
    is_named = isinstance(number, str)
    return {
        "job_id": job_id,
        "name": point.name,
        "step": point.step,
        "at": point.at,
        "attempt": attempt,
        "seq": seq,
        "value": None if is_named else number,
        "special": number if is_named else None,
    }


def _upsert(session: Session, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(_METRIC)
    changed = {column: statement.excluded[column] for column in ("at", "value", "special", "attempt", "seq")}
    # Rows are passed as parameters, so that the statement is compiled once for batches of all sizes.
    session.execute(statement.on_conflict_do_update(index_elements=["job_id", "name", "step"], set_=changed), rows)


def _selected_steps(session: Session, inside: dict[str, Any], *, max_points: int) -> list[int]:
    """Steps of the points that remain after down-sampling; all points are streamed as plain numbers."""
    count = session.scalar(select(func.count()).select_from(_METRIC).where(*POINTS_INSIDE), inside) or 0
    query = select(_METRIC.c.step, summaries.ORDER).where(*POINTS_INSIDE).order_by(_METRIC.c.step)
    parts = session.execute(query, inside, execution_options=_STREAMED).partitions()
    return [step for step, _ in downsample(chain.from_iterable(parts), count, max_points)]


def _points_at(session: Session, steps: Sequence[int]) -> tuple[Select[Any], object]:
    """What reads a series at these steps, and they as its one parameter: thousands of them would dominate the query."""
    if session.get_bind().dialect.name == "postgresql":
        return _points_of_steps(is_postgresql=True), steps
    return _points_of_steps(is_postgresql=False), json.dumps(steps)


@cache
def _points_of_steps(*, is_postgresql: bool) -> Select[Any]:
    if is_postgresql:
        wanted: Select[Any] = select(func.unnest(bindparam("steps", type_=postgresql.ARRAY(Integer))))
    else:
        wanted = select(func.json_each(bindparam("steps", type_=String)).table_valued("value").c.value)
    of_it = (_METRIC.c.job_id == bindparam("job_id"), _METRIC.c.name == bindparam("name"))
    return _POINTS.where(*of_it, _METRIC.c.step.in_(wanted))


def _read(session: Session, statement: Select[Any], values: dict[str, Any]) -> list[SeriesPoint]:
    return [
        SeriesPoint(step=step, at=at, value=number_of(value, special))
        for step, at, value, special in session.execute(statement, values).all()
    ]
