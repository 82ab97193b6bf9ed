"""The objective against each parameter: a small plot for each, with one axis of values."""

import math
from collections.abc import Sequence
from dataclasses import replace

from app.domain.sweeps.axes import Axis, axis_of_measured
from app.domain.sweeps.figures import Slice, Slices
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.plot import (
    ROOM,
    Plot,
    PlotMark,
    better,
    facts,
    hint_of,
    left_margin,
    legend,
    marks,
    of_trials,
    radius_of,
)
from app.domain.sweeps.pictures.ticks import text_of

MOST_DRAWN = 24
MOST_MARKS = 12_000
_COLUMNS, _TOP, _HEIGHT, _GAP_X, _GAP_Y, _BELOW, _RIGHT = 3, 88, 170, 22, 62, 58, 24
_GOLDEN = (math.sqrt(5) - 1) / 2
_SPREAD = 0.5  # of the part of a listed value


def draw(found: Slices, name: str) -> str:
    found = _fewer(found)
    shown = found.slices[:MOST_DRAWN]
    rows = max(1, math.ceil(len(shown) / _COLUMNS))
    left_out = len(found.slices) - len(shown)
    heading = svg.Heading(
        kind="slice",
        title=f"{name}: {found.objective.metric} by parameter",
        facts=facts(
            of_trials(len(found.points), found.measured),
            f"{len(shown)} of {len(found.slices)} parameters; choose others by ?parameters=" if left_out else "",
        ),
        description=f"Small charts of {better(found.objective)} against each of the parameters "
        f"{', '.join(each.axis.name for each in shown)}, for {found.measured} trials.",
    )
    return svg.document(heading, _TOP + rows * _HEIGHT + (rows - 1) * _GAP_Y + _BELOW, _parts(found, shown))


def _parts(found: Slices, shown: Sequence[Slice]) -> list[str]:
    y = axis_of_measured(found.objective.metric, [each.value for each in found.points]).widened(ROOM)
    left = left_margin(y, height=_HEIGHT)
    columns = max(1, min(_COLUMNS, len(shown)))
    width = (svg.WIDTH - left - _RIGHT - (columns - 1) * _GAP_X) / columns
    parts: list[str] = []
    all_marks: list[PlotMark] = []
    for place, each in enumerate(shown):
        row, column = divmod(place, _COLUMNS)
        plot = Plot(
            left=left + column * (width + _GAP_X),
            top=_TOP + row * (_HEIGHT + _GAP_Y),
            width=width,
            height=_HEIGHT,
            x=_axis(each.axis),
            y=y,
        )
        dots = _marks(found, each, plot)
        all_marks += dots
        parts += _panel(found, each, plot, dots, is_first=column == 0)
    return [*parts, *legend(all_marks, 70, best="best")]


def _fewer(found: Slices) -> Slices:
    """With so few trials that all plots together have no more than ``MOST_MARKS``; the best one is among them."""
    every = max(1, math.ceil(len(found.points) * min(len(found.slices), MOST_DRAWN) / MOST_MARKS))
    kept = [i for i, each in enumerate(found.points) if i % every == 0 or each.number == found.best]
    slices = [
        replace(each, values=[each.values[i] for i in kept], positions=[each.positions[i] for i in kept])
        for each in found.slices
    ]
    return replace(found, points=[found.points[i] for i in kept], slices=slices)


def _panel(found: Slices, each: Slice, plot: Plot, dots: list[PlotMark], *, is_first: bool) -> list[str]:
    titles = [plot.x_title(each.axis.name), *([plot.y_title(found.objective.metric)] if is_first else [])]
    if not dots:
        return [*plot.empty("not active yet" if found.points else "no trial yet"), *titles]
    return [*plot.frame(y_labels=is_first), *titles, *marks(plot, dots, radius=min(3.0, radius_of(len(found.points))))]


def _axis(axis: Axis) -> Axis:
    """With room at both ends."""
    return axis if axis.scale == "listed" else axis.widened(ROOM)


def _marks(found: Slices, each: Slice, plot: Plot) -> list[PlotMark]:
    dots = []
    for point, value in zip(found.points, each.values, strict=True):
        if value is None:
            continue
        hint = f"{hint_of(point.number, point.state, point.value)}; {each.axis.name} {text_of(value)}"
        dots.append(
            PlotMark(
                x=_across(plot, value, point.number),
                y=plot.y.position(point.value) or 0.0,
                state=point.state,
                is_feasible=point.is_feasible,
                is_best=point.number == found.best,
                hint=hint,
            )
        )
    return dots


def _across(plot: Plot, value: Value, number: int) -> float:
    """Trials with one of the listed values lie beside each other, so that none hides another."""
    position = plot.inset(plot.x.position(value) or 0.0)
    if plot.x.scale != "listed":
        return position
    return position + (number * _GOLDEN % 1 - 0.5) * _SPREAD / len(plot.x.values)
