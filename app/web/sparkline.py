"""A curve as small as a word: the points of a polyline, in the coordinates of its picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.web.formatting import number

WIDTH, HEIGHT, EDGE = 120, 24, 2


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    """``lines``: one for each stretch of finite values; ``label`` says in words what the curve shows."""

    lines: Sequence[str]
    label: str
    width: int = WIDTH
    height: int = HEIGHT


def sparkline(name: str, values: Sequence[float]) -> Sparkline | None:
    """None for fewer than two finite values."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return None
    low, high = min(finite), max(finite)
    across, up = (WIDTH - 2 * EDGE) / (len(values) - 1), (HEIGHT - 2 * EDGE) / ((high - low) or 1)
    lines, line = [], list[str]()
    for index, value in enumerate([*values, math.nan]):
        if math.isfinite(value):
            line.append(f"{EDGE + index * across:.1f},{HEIGHT - EDGE - (value - low) * up:.1f}")
        elif line:
            lines.append(" ".join(line))
            line = []
    broken = "" if len(finite) == len(values) else f", not finite {len(values) - len(finite)} times"
    return Sparkline(lines=lines, label=f"{name}: {number(finite[0])} at first, {number(finite[-1])} now{broken}")
