"""What one more device hour is likely to bring: better values, judged by how the recent trials differ.

The estimate takes the values of the recent trials for all that there are, and draws from them with replacement: the
expected best of as many draws as there are values, against that of so many more as an hour has trials. It is computed
exactly, without random numbers. It is on the low side, because no draw is better than the best value so far, and a
method that learns may find one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

RECENT = 30  # trials; older ones say less of a method that learns
FEWEST = 5


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """``expected_best_after_an_hour`` is as measured; ``trials``: so many complete in a device hour."""

    expected_best_after_an_hour: float
    expected_improvement: float
    trials: float


def forecast(
    values: Sequence[float | None], *, best: float, sign: float, completed: int, device_hours: float
) -> Forecast | None:
    """None with fewer than 5 completed trials, and without device hours.

    ``values`` are those of the completed trials in the order of their ends, as measured; None: it breaks a constraint.
    ``completed`` trials have used ``device_hours``, those included that were stopped or failed. ``sign`` makes smaller
    values better.
    """
    recent = [None if value is None else sign * value for value in values[-RECENT:]]
    able = [value for value in recent if value is not None]
    if len(recent) < FEWEST or not able or device_hours <= 0:
        return None
    trials = completed / device_hours
    # One that breaks a constraint can't be the best.
    ranked = sorted(max(able) if value is None else value for value in recent)
    gain = expected_gain(ranked, trials)
    improvement = max(0.0, gain - (ranked[0] - sign * best))
    if not math.isfinite(improvement):
        return None  # the difference of huge values
    return Forecast(
        expected_best_after_an_hour=best - sign * improvement, expected_improvement=improvement, trials=trials
    )


def expected_gain(ranked: Sequence[float], trials: float) -> float:
    """By how much the expected smallest of n + ``trials`` draws is below that of n; ``ranked`` are n values, ascending.

    The smallest of m draws is above the i-th value with the chance (1 - i/n)ᵐ.
    """
    count, gain = len(ranked), 0.0
    for i in range(1, count):
        above = math.log1p(-i / count)
        chance = math.exp(count * above) - math.exp((count + trials) * above)
        gain += (ranked[i] - ranked[i - 1]) * chance
    return gain
