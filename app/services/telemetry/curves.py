"""The curves of a job as they are drawn: series of a range of steps, and other axes than the step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.domain.metric_groups import GROUPS, Group, group_of, rank_of
from app.models import Job
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import SeriesPoint
from app.services.telemetry.summaries import LAST_STEP

EPOCH, TOKENS = AXES = ("epoch", "tokens")  # metrics that are axes
_AXIS_POINTS = 200


@dataclass(frozen=True, kw_only=True)
class CurvesRequest:
    """Both ends of the range belong to it."""

    names: Sequence[str]
    from_step: int = 0
    to_step: int = LAST_STEP
    max_points: int = 1000


@dataclass(frozen=True, kw_only=True)
class Curves:
    """``epochs`` and ``tokens`` are (step, value), all finite, between which the axis is straight."""

    series: dict[str, list[SeriesPoint]]
    epochs: Sequence[tuple[int, float]]
    tokens: Sequence[tuple[int, float]]
    has_ended: bool


def groups_of(session: Session, job_id: str) -> dict[Group, list[str]]:
    """The metrics that are curves, by group; groups without any are left out."""
    names = sorted((name for name in stored_metrics.names_of(session, job_id) if name not in AXES), key=rank_of)
    found = {group: [name for name in names if group_of(name) == group] for group in GROUPS}
    return {group: members for group, members in found.items() if members}


def curves(session: Session, job: Job, request: CurvesRequest) -> Curves:
    return Curves(
        series=points(session, job, request),
        epochs=_axis(session, job, EPOCH, job.current_epoch),
        tokens=tokens(session, job),
        has_ended=job.state in TERMINAL,
    )


def points(session: Session, job: Job, request: CurvesRequest) -> dict[str, list[SeriesPoint]]:
    """The points of the metrics that are named, not of all where none is."""
    if not request.names:
        return {}
    return stored_metrics.series(
        session,
        job.id,
        names=request.names,
        since_step=request.from_step - 1,
        to_step=request.to_step,
        max_points=request.max_points,
    )


def tokens(session: Session, job: Job) -> Sequence[tuple[int, float]]:
    """(step, tokens until then), between which the axis is straight; empty for a job that reports none."""
    return _axis(session, job, TOKENS, float(job.tokens))


def _axis(session: Session, job: Job, name: str, current: float) -> Sequence[tuple[int, float]]:
    """As measured, else as if every step had as much of it. Scripts may report values that are not finite."""
    measured = stored_metrics.series(session, job.id, names=[name], max_points=_AXIS_POINTS).get(name, [])
    finite = [(point.step, point.value) for point in measured if math.isfinite(point.value)]
    if finite:
        return [(0, 0.0), *(point for point in finite if point[0] > 0)]
    return [(0, 0.0), (job.current_step, current)] if current and math.isfinite(current) and job.current_step else []
