"""A job's attempts as bars on one axis of time: where each lies, in thousandths of the axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

WIDTH = 1000


@dataclass(frozen=True, kw_only=True)
class Bar:
    """``kind``: placed (devices held, not started), starting (until the first step), or trained."""

    kind: str
    x: float
    width: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TimelineRow:
    attempt: Any
    bars: Sequence[Bar]
    saved: Sequence[float]  # where checkpoints were stored
    seconds: float | None  # from start to end; None when it has not started


def rows(attempts: Sequence[Any], checkpoints: Sequence[Any], now: datetime) -> list[TimelineRow]:
    """One row per attempt, in their order; an attempt that has not ended lasts until ``now``."""
    if not attempts:
        return []
    first = min(each.created_at for each in attempts)
    last = max(each.ended_at or now for each in attempts)
    axis = max(1.0, (last - first).total_seconds())
    return [_row(each, [c for c in checkpoints if c.attempt == each.number], first, axis, now) for each in attempts]


def _row(attempt: Any, saved: Sequence[Any], first: datetime, axis: float, now: datetime) -> TimelineRow:  # noqa: ANN401 – models are not imported here
    ended = attempt.ended_at or now
    started = attempt.started_at or ended
    trained = min(attempt.trained_at or ended, ended)
    spans = (("placed", attempt.created_at, started), ("starting", started, trained), ("trained", trained, ended))
    bars = []
    for kind, since, until in spans:
        seconds = (until - since).total_seconds()
        if seconds > 0:
            x = _place(since, first, axis)
            bars.append(Bar(kind=kind, x=x, width=max(1.0, _place(until, first, axis) - x), seconds=seconds))
    lasted = (ended - attempt.started_at).total_seconds() if attempt.started_at is not None else None
    return TimelineRow(
        attempt=attempt, bars=bars, saved=[_place(c.created_at, first, axis) for c in saved], seconds=lasted
    )


def _place(moment: datetime, first: datetime, axis: float) -> float:
    return round(WIDTH * min(1.0, max(0.0, (moment - first).total_seconds() / axis)), 2)
