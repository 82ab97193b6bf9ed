"""A line for each trial over an axis for each parameter, and one for the objective."""

from collections.abc import Sequence

from app.domain.sweeps.axes import Axis
from app.domain.sweeps.figures import Parallel, ParallelLine
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.plot import MOST_HINTS, better, facts, hint_of, of_trials
from app.domain.sweeps.pictures.ticks import text_of, ticks_with_ends

MOST_DRAWN = 15  # axes of parameters
MOST_LINES = 1000
_MANY = 300  # lines, from which on they are fainter
_TOP, _HEIGHT, _BELOW, _LEFT, _RIGHT, _COLUMN = 142, 320, 30, 76, 64, 136
_OFF = 34  # of lines of trials without the parameter, below its axis
_SHADES = 6
_MOST_LISTED, _MOST_TICKS = 12, 6


def draw(found: Parallel, name: str) -> str:
    axes = [*found.axes[:-1][:MOST_DRAWN], found.axes[-1]]
    places = [*range(len(axes) - 1), len(found.axes) - 1]
    lines = _kept(found)
    left_out = len(found.axes) - len(axes)
    heading = svg.Heading(
        kind="parallel",
        title=f"{name}: values and {found.objective.metric}",
        facts=facts(
            of_trials(len(lines), found.measured),
            better(found.objective),
            f"{len(axes) - 1} of {len(found.axes) - 1} parameters; choose others by ?parameters=" if left_out else "",
        ),
        description=_description(found, axes),
    )
    width = max(svg.WIDTH, _LEFT + _RIGHT + (len(axes) - 1) * _COLUMN)
    step = (width - _LEFT - _RIGHT) / max(1, len(axes) - 1)
    across = [_LEFT + place * step for place in range(len(axes))]
    height = _TOP + _HEIGHT + _BELOW + (_OFF if any(axis.is_conditional for axis in axes) else 0)
    parts = [*_lines(found, lines, places, across), *_axes(axes, across, step), *_legend(found)]
    if not lines:
        parts.append(svg.text(width / 2, _TOP + _HEIGHT / 2, "no trial has a value yet", "muted halo", anchor="middle"))
    return svg.document(heading, height, parts, width=width)


def _kept(found: Parallel) -> list[ParallelLine]:
    """The worst first; of too many the best, and of other ranks equally many."""
    ranked = sorted(found.lines, key=lambda each: -found.objective.sign * each.point.value)
    if len(ranked) <= MOST_LINES:
        return ranked
    return [ranked[(i + 1) * len(ranked) // MOST_LINES - 1] for i in range(MOST_LINES)]


def _lines(found: Parallel, lines: Sequence[ParallelLine], places: Sequence[int], across: Sequence[float]) -> list[str]:
    """Coloured by rank, the best one above all."""
    parts, best = [f'<g class="ramp{" many" * (len(lines) > _MANY)}">'], ""
    for rank, each in enumerate(lines):
        corners = [(x, _down(each.positions[place])) for x, place in zip(across, places, strict=True)]
        is_best = each.point.number == found.best
        hint = hint_of(each.point.number, each.point.state, each.point.value) if len(lines) <= MOST_HINTS else ""
        drawn = svg.path(corners, "record" if is_best else f"ramp q{rank * _SHADES // len(lines)}", hint=hint)
        if is_best:
            best = drawn
        else:
            parts.append(drawn)
    return [*parts, best, "</g>"]


def _down(position: float | None) -> float:
    return _TOP + _HEIGHT + _OFF - 8 if position is None else _TOP + (1 - position) * _HEIGHT


def _axes(axes: Sequence[Axis], across: Sequence[float], step: float) -> list[str]:
    parts = []
    for place, (axis, x) in enumerate(zip(axes, across, strict=True)):
        is_objective = place == len(axes) - 1
        parts += [svg.line(x, _TOP, x, _TOP + _HEIGHT, "line"), *_name(axis, x, step, is_objective=is_objective)]
        parts += _tick_labels(axis, x, step, is_objective=is_objective)
        if axis.is_conditional:
            parts.append(svg.text(x - 8, _down(None) + 4, "not active", "muted small halo", anchor="end"))
    return parts


def _tick_labels(axis: Axis, x: float, step: float, *, is_objective: bool) -> list[str]:
    """Beside the axis: on the right of the last one, where no lines are."""
    parts = []
    for tick in ticks_with_ends(axis, _MOST_LISTED if axis.scale == "listed" else _MOST_TICKS):
        y = _down(tick.position)
        room = step - 20 if x > _LEFT else _LEFT - 14
        label = svg.fitted(tick.label, _RIGHT - 12 if is_objective else room, svg.SMALL)
        place, anchor = (x + 9, "start") if is_objective else (x - 8, "end")
        parts.append(svg.line(x - 4, y, x + 4, y, "line"))
        parts.append(svg.text(place, y + 4, label, "small halo", anchor=anchor, full=tick.label))
    return parts


def _name(axis: Axis, x: float, step: float, *, is_objective: bool) -> list[str]:
    """The last part of a dotted name, with those before it in a line above."""
    before, dot, last = axis.name.rpartition(".")
    room = step - 10
    kind = "strong bestlabel" if is_objective else "strong"
    parts = [
        svg.text(x, _TOP - 14, svg.fitted(last, room * svg.BOLD, from_end=True), kind, anchor="middle", full=axis.name)
    ]
    if dot:
        prefix = svg.fitted(before + dot, room, svg.SMALL, from_end=True)
        parts.append(svg.text(x, _TOP - 29, prefix, "muted small", anchor="middle", full=axis.name))
    return parts


def _legend(found: Parallel) -> list[str]:
    """From worse to better, and the best one."""
    parts, y, x = [], 84, 20.0
    parts.append(svg.text(x, y + 4, "worse", "muted small"))
    x += 38
    for shade in range(_SHADES):
        stroke = svg.path([(x + shade * 16, y), (x + shade * 16 + 15, y)], f"ramp swatch q{shade}")
        parts.append(stroke)
    x += _SHADES * 16 + 6
    parts.append(svg.text(x, y + 4, "better", "muted small"))
    if found.best is not None:
        parts.append(svg.path([(x + 54, y), (x + 74, y)], "record"))
        parts.append(svg.text(x + 80, y + 4, f"best: trial {found.best}", "muted small"))
    return parts


def _description(found: Parallel, axes: Sequence[Axis]) -> str:
    names = ", ".join(axis.name for axis in axes[:-1])
    text = f"A line for each of {found.measured} trials over the axes {names} and {better(found.objective)}."
    best = next((each for each in found.lines if each.point.number == found.best), None)
    if best is None:
        return text
    values = ", ".join(f"{name} {text_of(value)}" for name, value in best.point.values.items())
    return f"{text} The best is trial {best.point.number} with {text_of(best.point.value)}: {values}."
