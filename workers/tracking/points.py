"""Metric points on their way to a tracking service, and how they are read from the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sqlalchemy import func, select

from app.database.engine import Database
from app.models import Metric
from app.services.telemetry import live_metrics

# MLflow takes 1,000 metrics and tags in one call.
MOST_POINTS = 900


@dataclass(frozen=True, kw_only=True)
class PointBatch:
    """Points of one attempt in order of arrival, as ``[name, step, milliseconds since 1970, value, arrival number]``;
    ``seq`` is the last one's arrival number.
    """

    points: Sequence[list[Any]]
    seq: int
    attempt: int


def next_batch(db: Database, job_id: str, seq: int) -> PointBatch | None:
    """The points that arrived after ``seq``; None when there is none."""
    with db.read() as session:
        rows = live_metrics.points_after(session, job_id, seq, limit=MOST_POINTS)
        if not rows:
            return None
        attempt = rows[0].attempt
        mine = list(takewhile(lambda row: row.attempt == attempt, rows))
        points = [
            [row.name, row.step, int(row.at.timestamp() * 1000), row.special or row.value, row.seq] for row in mine
        ]
        return PointBatch(points=points, seq=mine[-1].seq, attempt=attempt)


def count_after(db: Database, job_id: str, seq: int | None, *, attempt: int) -> int:
    """How many points arrived after ``seq``; None: how many the attempt has, since others may have been delivered."""
    of_these = Metric.attempt == attempt if seq is None else Metric.seq > seq
    with db.read() as session:
        counted = select(func.count()).select_from(Metric).where(Metric.job_id == job_id, of_these)
        return session.scalar(counted) or 0
