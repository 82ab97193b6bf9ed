"""The numbers of a sweep's figures: pure functions of what its trials have measured."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.domain.downsampling import downsample
from app.domain.sweeps import pareto
from app.domain.sweeps.axes import Axis, axis_of, axis_of_measured
from app.domain.sweeps.parameters import Parameter, Value
from app.domain.sweeps.spec import Objective
from app.domain.sweeps.states import TrialState

Item = TypeVar("Item")

# PED-ANOVA compares the densities of the best trials with those of all; of fewer than five it knows too little.
FEWEST_BEST, SHARE_OF_BEST, FEWEST_COMPLETED = 5, 0.1, 10


@dataclass(frozen=True, kw_only=True)
class Point:
    """A trial with its value of one objective, as measured; of a stopped trial that of its last report."""

    number: int
    state: str
    value: float
    is_feasible: bool = True
    values: Mapping[str, Value]

    @property
    def is_able(self) -> bool:
        """Whether it can be the best one."""
        return self.state == TrialState.COMPLETED and self.is_feasible


@dataclass(frozen=True, kw_only=True)
class ObjectiveHistory:
    """Values by trial, and those that were the best so far. ``measured`` counts the trials before thinning."""

    objective: Objective
    measured: int
    points: Sequence[Point]
    best: Sequence[Point]


@dataclass(frozen=True, kw_only=True)
class ParallelLine:
    """A trial with its position on each axis; None where the parameter is not active."""

    point: Point
    positions: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """An axis for each parameter that varies, and the last one for the objective."""

    objective: Objective
    measured: int
    axes: Sequence[Axis]
    lines: Sequence[ParallelLine]
    best: int | None
    constants: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One parameter: its value and position for each point of the figure, None where it is not active."""

    axis: Axis
    values: Sequence[Value | None]
    positions: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class Slices:
    objective: Objective
    measured: int
    points: Sequence[Point]
    slices: Sequence[Slice]
    best: int | None
    constants: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ParameterImportance:
    """``importance`` is a share of 1. ``trials``: completed ones in which the parameter was active."""

    name: str
    importance: float
    trials: int
    is_constant: bool
    is_conditional: bool


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Most important first. ``objective`` is None for the Pareto front of several.

    ``best``: how many of the ``completed`` trials count as the best, which are compared with all. While fewer than
    ``needed`` have completed, there are no ``parameters``.
    """

    objective: Objective | None
    completed: int
    needed: int
    best: int
    parameters: Sequence[ParameterImportance]


@dataclass(frozen=True, kw_only=True)
class RungPoint:
    """A trial at a rung; ``value`` is None where it was not finite."""

    number: int
    rung: int
    value: float | None
    continues: bool
    rank: int
    compared: int


@dataclass(frozen=True, kw_only=True)
class Rung:
    """``trials`` have reported there. ``reports`` are in the order of trials; ``median`` is theirs.

    ``is_last``: a trial that has come here is at its end, so all continue.
    """

    rung: int
    trials: int
    continued: int
    best: float | None
    median: float | None
    is_last: bool
    reports: Sequence[RungPoint]


@dataclass(frozen=True, kw_only=True)
class Rungs:
    objective: Objective
    early_stopping: str
    unit: str
    rungs: Sequence[Rung]


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A trial by two objectives, as measured; ``is_best``: on the Pareto front of all objectives."""

    number: int
    state: str
    x: float
    y: float
    is_feasible: bool
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class ParetoFront:
    """``objectives``: how many the sweep has."""

    x: Objective
    y: Objective
    objectives: int
    measured: int
    points: Sequence[FrontPoint]


def history(points: Sequence[Point], objective: Objective, *, most: int) -> ObjectiveHistory:
    """``points`` are in the order of numbers."""
    kept = {number for number, _ in downsample([(each.number, each.value) for each in points], len(points), most)}
    return ObjectiveHistory(
        objective=objective,
        measured=len(points),
        points=[each for each in points if each.number in kept],
        best=_improvements(points, objective),
    )


def parallel(points: Sequence[Point], objective: Objective, parameters: Sequence[Parameter], *, most: int) -> Parallel:
    axes = [axis_of(each) for each in parameters if not each.is_constant]
    last = axis_of_measured(objective.metric, (each.value for each in points))
    shown = thinned(points, objective, most)
    return Parallel(
        objective=objective,
        measured=len(points),
        axes=[*axes, last],
        lines=[
            ParallelLine(point=each, positions=[*(_position(axis, each) for axis in axes), last.position(each.value)])
            for each in shown
        ],
        best=_best_number(points, objective),
        constants=[each.name for each in parameters if each.is_constant],
    )


def slices(points: Sequence[Point], objective: Objective, parameters: Sequence[Parameter], *, most: int) -> Slices:
    shown = thinned(points, objective, most)
    return Slices(
        objective=objective,
        measured=len(points),
        points=shown,
        slices=[_slice(axis_of(each), shown) for each in parameters if not each.is_constant],
        best=_best_number(points, objective),
        constants=[each.name for each in parameters if each.is_constant],
    )


def best_share(completed: int) -> float:
    """The share of completed trials that count as the best: a tenth, but not fewer than five."""
    return max(SHARE_OF_BEST, FEWEST_BEST / completed)


def importance(
    found: Mapping[str, float],
    parameters: Sequence[Parameter],
    completed: Sequence[Mapping[str, Value]],
    objective: Objective | None,
) -> Importance:
    """``found`` has the shares of parameters that vary, ``completed`` the values of trials."""
    number = len(completed)
    if number < FEWEST_COMPLETED:
        return Importance(objective=objective, completed=number, needed=FEWEST_COMPLETED, best=0, parameters=[])
    ranked = sorted(parameters, key=lambda each: (-found.get(each.name, 0.0), each.is_constant))
    return Importance(
        objective=objective,
        completed=number,
        needed=FEWEST_COMPLETED,
        best=math.ceil(best_share(number) * number),
        parameters=[
            ParameterImportance(
                name=each.name,
                importance=found.get(each.name, 0.0),
                trials=sum(each.name in values for values in completed),
                is_constant=each.is_constant,
                is_conditional=bool(each.only_if),
            )
            for each in ranked
        ],
    )


def rung(
    at: int, reports: Sequence[RungPoint], objective: Objective, *, trials: int, continued: int, is_last: bool
) -> Rung:
    values = [each.value for each in reports if each.value is not None]
    return Rung(
        rung=at,
        trials=trials,
        continued=continued,
        best=min(values, key=lambda value: objective.sign * value, default=None),
        median=statistics.median(values) if values else None,
        is_last=is_last,
        reports=reports,
    )


def front(
    trials: Sequence[tuple[Point, Sequence[float]]], objectives: Sequence[Objective], x: int, y: int, *, most: int
) -> ParetoFront:
    """``trials`` with all their objectives as measured; ``x`` and ``y`` are places among ``objectives``."""
    signs = [each.sign for each in objectives]
    able = [(point.number, values) for point, values in trials if point.is_able]
    signed = [[sign * value for sign, value in zip(signs, values, strict=True)] for _, values in able]
    on_front = sorted(pareto.front(signed), key=lambda i: able[i][1][x])
    best = {able[i][0] for i in on_front}
    shown = {able[i][0] for i in _evenly(on_front, most)}
    others = _evenly([point.number for point, _ in trials if point.number not in best], most - len(shown))
    kept = {*shown, *others}
    return ParetoFront(
        x=objectives[x],
        y=objectives[y],
        objectives=len(objectives),
        measured=len(trials),
        points=[
            FrontPoint(
                number=point.number,
                state=point.state,
                x=values[x],
                y=values[y],
                is_feasible=point.is_feasible,
                is_best=point.number in best,
            )
            for point, values in trials
            if point.number in kept
        ],
    )


def thinned(points: Sequence[Point], objective: Objective, most: int) -> list[Point]:
    """At most ``most`` points in the order of numbers: the best one, and of all ranks equally many."""
    if len(points) <= most:
        return [*points]
    ranked = sorted(points, key=lambda each: (objective.sign * each.value, each.number))
    best = _best_number(points, objective)
    kept = {each.number for each in _evenly(ranked, most)}
    if best is not None and best not in kept:  # a better one breaks a constraint, or was stopped
        kept = {each.number for each in _evenly(ranked, most - 1)} | {best}
    return [each for each in points if each.number in kept]


def _evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most ``most`` of the items, with equal distances, from the first one on."""
    if len(items) <= most:
        return [*items]
    return [items[i * len(items) // most] for i in range(most)]


def _improvements(points: Iterable[Point], objective: Objective) -> list[Point]:
    found: list[Point] = []
    for each in points:
        if each.is_able and (not found or objective.sign * each.value < objective.sign * found[-1].value):
            found.append(each)
    return found


def _best_number(points: Iterable[Point], objective: Objective) -> int | None:
    able = [each for each in points if each.is_able]
    best = min(able, key=lambda each: (objective.sign * each.value, each.number), default=None)
    return None if best is None else best.number


def _position(axis: Axis, point: Point) -> float | None:
    return axis.position(point.values[axis.name]) if axis.name in point.values else None


def _slice(axis: Axis, points: Sequence[Point]) -> Slice:
    return Slice(
        axis=axis,
        values=[each.values.get(axis.name) for each in points],
        positions=[_position(axis, each) for each in points],
    )
