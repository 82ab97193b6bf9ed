"""Annealing after hyperopt's ``hyperopt.anneal`` (https://github.com/hyperopt/hyperopt/blob/master/hyperopt/anneal.py).

Each value is drawn near that of a good earlier trial, which is chosen by a geometric distribution over their ranks; the
neighbourhood shrinks with the number of trials.
"""

import math
import random
from collections.abc import Sequence

from app.domain.sweeps.draws import drawn, generator
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Parameter, Value, same
from app.domain.sweeps.space import Space


def anneal_values(
    space: Space, observations: Sequence[Observation], seed: int, *, avg_best_idx: float = 2.0, shrink_coef: float = 0.1
) -> dict[str, Value]:
    """``avg_best_idx``: mean rank of the chosen trials, from 1; ``shrink_coef``: how fast the neighbourhood shrinks.

    Raises BadSpec if no draw meets the conditions.
    """
    source, ranked = generator(seed), _ranked(observations)

    def draw() -> dict[str, Value]:
        values: dict[str, Value] = {}
        for parameter in space.parameters:
            if space.active(parameter, values):
                known = [each.values[parameter.name] for each in ranked if parameter.name in each.values]
                values[parameter.name] = _near(parameter, known, source, avg_best_idx, shrink_coef)
        return values

    return drawn(space, draw)


def _ranked(observations: Sequence[Observation]) -> list[Observation]:
    """Best first: feasible before infeasible, those that reached their end before those that were stopped."""
    able = [each for each in observations if each.state in ("completed", "stopped") and each.objectives]

    def rank(each: Observation) -> tuple[float, bool, int, float, int]:
        is_stopped = each.state == "stopped"
        broken = sum(violation for violation in each.violations if violation > 0)
        return broken, is_stopped, -each.step if is_stopped else 0, each.objectives[0], each.number

    return sorted(able, key=rank)


def _near(
    parameter: Parameter, known: Sequence[Value], source: random.Random, avg_best_idx: float, shrink_coef: float
) -> Value:
    """``known``: its values in earlier trials, best first."""
    if not known or parameter.is_constant:
        return parameter.from_unit(source.random())
    good = known[min(_geometric(source, 1.0 / avg_best_idx), len(known) - 1)]
    width = 1.0 / (1.0 + len(known) * shrink_coef)
    if parameter.values:
        # The good one, or with the probability of the width any.
        is_any = source.random() < width or not any(same(good, value) for value in parameter.values)
        return parameter.from_unit(source.random()) if is_any else good
    middle = min(max(_unit(parameter, float(good)), width / 2), 1.0 - width / 2)
    return parameter.from_unit(min(max(middle + (source.random() - 0.5) * width, 0.0), math.nextafter(1.0, 0.0)))


def _geometric(source: random.Random, probability: float) -> int:
    """How many trials fail before the first success."""
    if probability >= 1.0:
        return 0
    return int(math.log(1.0 - source.random()) / math.log(1.0 - probability))


def _unit(parameter: Parameter, value: float) -> float:
    """The middle of what ``from_unit`` maps to the value."""
    low, high = float(parameter.low or 0.0), float(parameter.high or 0.0)
    if parameter.size is not None:
        step = float(parameter.step or 1)
        # What lies between two values belongs half to each, and so do both ends.
        high = low + (parameter.size - 0.5) * step
        low -= step / 2
    if parameter.scale == "log":
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
