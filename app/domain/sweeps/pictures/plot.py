"""A plot with two axes: its frame, grid and labels, and the marks of trials in it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from app.domain.sweeps.axes import Axis
from app.domain.sweeps.pictures import svg
from app.domain.sweeps.pictures.ticks import Tick, text_of, ticks
from app.domain.sweeps.spec import Objective
from app.domain.sweeps.states import TrialState

# Marks with a text for the pointer; of more, none could be hit.
MOST_HINTS = 500
_RADII = ((200, 3.5), (1000, 2.7), (math.inf, 2.0))
ROOM = 0.04  # between marks and frame, as a share of the axis
MOST_CUT = 6  # listed values whose labels are cut rather than left out


@dataclass(frozen=True)
class PlotMark:
    """A trial in a plot: 0 to 1 from the left and from below."""

    x: float
    y: float
    state: str
    is_feasible: bool
    is_best: bool
    hint: str


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A rectangle in the picture with its axes."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    def across(self, position: float) -> float:
        return self.left + position * self.width

    def down(self, position: float) -> float:
        return self.bottom - position * self.height

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of two values of the axes."""
        return self.across(self.inset(self.x.position(x) or 0.0)), self.down(self.y.position(y) or 0.0)

    def inset(self, position: float) -> float:
        """A position on the axis as a share of the width: each listed value has the middle of an equal part."""
        listed = len(self.x.values)
        return (position * (listed - 1) + 0.5) / listed if self.x.scale == "listed" and listed > 1 else position

    def empty(self, why: str) -> list[str]:
        """The frame of a figure that has nothing to show yet."""
        words = svg.text(self.left + self.width / 2, self.top + self.height / 2, why, "muted", anchor="middle")
        return [svg.line(self.left, self.bottom, self.right, self.bottom, "line"), words]

    def frame(self, *, y_labels: bool = True) -> list[str]:
        """Grid, both axes and their labels, without titles."""
        parts = []
        for tick in self.y_ticks():
            y = self.down(tick.position)
            parts.append(svg.line(self.left, y, self.right, y, "grid"))
            if y_labels:
                parts.append(svg.text(self.left - 8, y + 4, tick.label, "muted small", anchor="end"))
        parts.append(svg.line(self.left, self.bottom, self.right, self.bottom, "line"))
        return parts + self._x_labels()

    def y_ticks(self) -> list[Tick]:
        return ticks(self.y, max(2, round(self.height / 48)))

    def x_ticks(self) -> list[Tick]:
        """As many as have room for their labels; a few listed values have all of them, cut where there is no room."""
        if len(self.x.values) > MOST_CUT:
            return self._fitting()
        return ticks(self.x, MOST_CUT) if self.x.scale == "listed" else self._fitting()

    def _fitting(self) -> list[Tick]:
        for most in range(max(2, round(self.width / 48)), 1, -1):
            found = ticks(self.x, most)
            if self._have_room(found):
                return found
        return ticks(self.x, 1)

    def _have_room(self, found: Sequence[Tick]) -> bool:
        ends = [(self.across(self.inset(each.position)), svg.width_of(each.label, svg.SMALL) / 2) for each in found]
        return all(right - left > half + other + 8 for (left, half), (right, other) in pairwise(ends))

    def _x_labels(self) -> list[str]:
        parts, found = [], self.x_ticks()
        room = self.width / max(1, len(found)) - 8 if self.x.scale == "listed" else self.width
        for tick in found:
            x = self.across(self.inset(tick.position))
            label = svg.fitted(tick.label, max(room, 24), svg.SMALL)
            parts.append(svg.line(x, self.bottom, x, self.bottom + 4, "line"))
            parts.append(svg.text(x, self.bottom + 17, label, "muted small", anchor="middle", full=tick.label))
        return parts

    def y_title(self, title: str) -> str:
        label = svg.fitted(title, self.height + 20)
        return svg.text(28, self.top + self.height / 2, label, anchor="middle", turned=True, full=title)

    def x_title(self, title: str) -> str:
        label = svg.fitted(title, self.width, from_end=True)
        return svg.text(self.left + self.width / 2, self.bottom + 40, label, anchor="middle", full=title)


def left_margin(y: Axis, *, height: float) -> float:
    """Room for the labels of an axis and its title."""
    labels = [tick.label for tick in ticks(y, max(2, round(height / 48)))]
    return 48 + max((svg.width_of(label, svg.SMALL) for label in labels), default=0.0)


def radius_of(marks_there: int) -> float:
    """Many marks are smaller."""
    return next(size for most, size in _RADII if marks_there <= most)


def marks(plot: Plot, found: Sequence[PlotMark], *, radius: float | None = None) -> list[str]:
    """The best one above all, and each place once: more would only be seen as one."""
    radius = radius_of(len(found)) if radius is None else radius
    with_hints = len(found) <= MOST_HINTS
    drawn: dict[tuple[int, int, str], str] = {}
    for each in sorted(found, key=_layer):
        x, y = plot.across(each.x), plot.down(each.y)
        hint = each.hint if with_hints or each.is_best else ""
        drawn[round(x), round(y), _kind(each)] = _mark(x, y, _kind(each), radius, hint)
    return [*drawn.values()]


def _layer(mark: PlotMark) -> int:
    return ("broken", "stopped", "done", "best").index(_kind(mark))


def _kind(mark: PlotMark) -> str:
    if mark.is_best:
        return "best"
    if mark.state == TrialState.STOPPED:
        return "stopped"
    return "done" if mark.is_feasible else "broken"


def _mark(x: float, y: float, kind: str, radius: float, hint: str) -> str:
    if kind == "broken":
        return svg.cross(x, y, kind, hint=hint)
    size = {"best": radius + 2, "stopped": radius - 0.8}.get(kind, radius)
    return svg.circle(x, y, size, kind, hint=hint)


_LEGEND = {"best": "", "done": "completed", "stopped": "stopped early", "broken": "breaks a constraint"}


def legend(found: Iterable[PlotMark], y: float, *, best: str, right: float = svg.WIDTH - 24) -> list[str]:
    """What the marks that are there mean, in a line that ends at ``right``."""
    there = {_kind(each) for each in found}
    parts: list[str] = []
    for kind, meaning in reversed(_LEGEND.items()):
        if kind in there:
            label = meaning or best
            right -= svg.width_of(label, svg.SMALL)
            parts += [svg.text(right, y + 4, label, "muted small"), _mark(right - 9, y, kind, _RADII[0][1], "")]
            right -= 30
    return parts


def better(objective: Objective) -> str:
    """The metric, and which of its values are better."""
    return f"{objective.metric} ({'larger' if objective.sign < 0 else 'smaller'} is better)"


def facts(*parts: str) -> str:
    """The line below a title."""
    return " \N{MIDDLE DOT} ".join(part for part in parts if part)


def counted(number: int, noun: str) -> str:
    return f"{text_of(number)} {noun}{'' if number == 1 else 's'}"


def of_trials(shown: int, measured: int) -> str:
    """How many trials there are, and how many of them are drawn."""
    return (
        counted(measured, "trial") if shown == measured else f"{text_of(shown)} of {counted(measured, 'trial')} drawn"
    )


def hint_of(number: int, state: str, *values: float) -> str:
    return (
        f"trial {number}: {', '.join(map(text_of, values))}{', stopped early' if state == TrialState.STOPPED else ''}"
    )
