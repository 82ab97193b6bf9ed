"""Lines of the last minutes or hours, as points of an SVG: time to the right, percent upwards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.services.nodes.device_usage import NodeUse

WIDTH, HEIGHT = 240, 40
_GAP = timedelta(minutes=3)  # without samples for longer, the line is interrupted


@dataclass(frozen=True, kw_only=True)
class HistoryLine:
    """``lines``: the points of each piece, a unit of the SVG apart or more; ``last``: the newest value as a part of the
    whole.
    """

    lines: Sequence[str]
    last: float | None
    most: float | None


def machine_line(samples: Sequence[NodeUse], now: datetime, *, minutes: int) -> HistoryLine:
    """The use of the processors."""
    return _line([(use.at, use.cpu_percent) for use in samples], now, minutes)


def device_line(samples: Sequence[NodeUse], index: int, now: datetime, *, minutes: int) -> HistoryLine:
    """The utilization of a device."""
    found = ((use.at, use.of(index)) for use in samples)
    return _line([(at, device.utilization) for at, device in found if device is not None], now, minutes)


def _line(values: Iterable[tuple[datetime, float | None]], now: datetime, minutes: int) -> HistoryLine:
    pieces: list[list[tuple[int, list[float]]]] = []  # of each place the values
    seen: list[float] = []
    before: datetime | None = None
    for at, percent in values:
        if percent is None:
            continue
        if before is None or at - before > _GAP:
            pieces.append([])
        x = max(0, int(WIDTH * (1 - (now - at) / timedelta(minutes=minutes))))
        if not pieces[-1] or pieces[-1][-1][0] != x:
            pieces[-1].append((x, []))
        pieces[-1][-1][1].append(min(percent, 100.0))
        seen.append(percent / 100)
        before = at
    return HistoryLine(
        lines=[" ".join(_point(x, found) for x, found in piece) for piece in pieces],
        last=seen[-1] if seen else None,
        most=max(seen, default=None),
    )


def _point(x: int, percents: Sequence[float]) -> str:
    """The mean of what falls on one place."""
    return f"{x},{HEIGHT * (1 - sum(percents) / len(percents) / 100):.1f}"
