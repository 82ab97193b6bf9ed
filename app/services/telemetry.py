"""Progress and metrics: stored in batches under the fencing token, read with minima and maxima kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.domain.errors import LeaseLost
from app.domain.job_state import HELD
from app.domain.series import downsample
from app.extensions import Database
from app.models import Job, Metric
from app.models.base import utc_now

_BATCH = 500  # rows per INSERT; SQLite takes at most 32 766 variables in one statement


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a training stands; ``step`` counts finished optimizer steps."""

    step: int
    total_steps: int | None = None
    epoch: float = 0.0
    total_epochs: float | None = None
    tokens: int = 0
    eta_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class MetricPoint:
    name: str
    step: int
    at: datetime
    value: float  # may be NaN or infinite: that must reach the person who trains


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What a supervisor has collected since its last write."""

    progress: Progress | None = None
    points: Sequence[MetricPoint] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class SeriesPoint:
    step: int
    at: datetime
    value: float


def store(db: Database, *, job_id: str, attempt: int, fence: int, reports: Reports) -> None:
    """Write a batch in one transaction. Points of steps done again replace the old ones.

    Raises LeaseLost when the token is stale; nothing is written then.
    """
    with db.write() as session:
        values: dict[str, Any] = {"updated_at": utc_now()}
        if reports.progress is not None:
            values |= _progress_columns(reports.progress)
        newest = {p.name: _json_number(p.value) for p in sorted(reports.points, key=lambda p: p.step)}
        if newest:
            before = session.scalar(select(Job.latest_metrics).where(Job.id == job_id)) or {}
            values["latest_metrics"] = {**before, **newest}
        held = session.execute(
            update(Job)
            .where(Job.id == job_id, Job.fence == fence, Job.status.in_(HELD))
            .values(**values)
            .returning(Job.id)
            .execution_options(synchronize_session=False)
        ).first()
        if held is None:
            raise LeaseLost(f"attempt {attempt} of job {job_id} may no longer report")
        _upsert(session, job_id, attempt, reports.points)


def series(
    session: Session, job_id: str, *, names: Sequence[str] = (), since_step: int = -1, max_points: int = 1000
) -> dict[str, list[SeriesPoint]]:
    """Points per metric with a step above ``since_step``, at most ``max_points`` each."""
    query = select(Metric).where(Metric.job_id == job_id, Metric.step > since_step)
    if names:
        query = query.where(Metric.name.in_(names))
    found: dict[str, list[SeriesPoint]] = {}
    for row in session.scalars(query.order_by(Metric.name, Metric.step)):
        found.setdefault(row.name, []).append(SeriesPoint(step=row.step, at=row.at, value=_value(row)))
    return {name: _thin(points, max_points) for name, points in found.items()}


def metric_names(session: Session, job_id: str) -> list[str]:
    return list(session.scalars(select(Metric.name).where(Metric.job_id == job_id).group_by(Metric.name)))


def newest_step(session: Session, job_id: str) -> int:
    return session.scalar(select(func.max(Metric.step)).where(Metric.job_id == job_id)) or 0


def _progress_columns(progress: Progress) -> dict[str, Any]:
    total = progress.total_steps
    share = min(1.0, progress.step / total) if total else 0.0
    return {
        "current_step": progress.step,
        "total_steps": total,
        "current_epoch": progress.epoch,
        "total_epochs": progress.total_epochs,
        "tokens": progress.tokens,
        "eta_seconds": progress.eta_seconds,
        "progress": share,
    }


def _upsert(session: Session, job_id: str, attempt: int, points: Sequence[MetricPoint]) -> None:
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    # Two points of one (name, step) in a batch would make PostgreSQL refuse the statement: the later one counts.
    rows = {
        (p.name, p.step): {
            "job_id": job_id, "name": p.name, "step": p.step, "at": p.at, "attempt": attempt,
            "value": p.value if math.isfinite(p.value) else None,
            "special": None if math.isfinite(p.value) else _json_number(p.value),
        }
        for p in points
    }  # fmt: skip
    pending = list(rows.values())
    for start in range(0, len(pending), _BATCH):
        statement = dialect.insert(Metric).values(pending[start : start + _BATCH])
        changed = {c: statement.excluded[c] for c in ("at", "value", "special", "attempt")}
        session.execute(statement.on_conflict_do_update(index_elements=["job_id", "name", "step"], set_=changed))


def _json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _value(row: Metric) -> float:
    return float(row.special) if row.special is not None else row.value if row.value is not None else math.nan


def _thin(points: list[SeriesPoint], max_points: int) -> list[SeriesPoint]:
    if len(points) <= max_points:
        return points
    # NaN has no order; to the thinning it is the largest value, so that a point that broke is never dropped.
    keyed = [(i, math.inf if math.isnan(p.value) else p.value) for i, p in enumerate(points)]
    return [points[i] for i, _ in downsample(keyed, max_points)]
