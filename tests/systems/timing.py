"""What times tell: whether one who measures two kinds of requests can tell them apart."""

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

SURE = 5.0  # standard deviations, which chance reaches once in two million comparisons


def difference(first: Sequence[float], second: Sequence[float]) -> float:
    """How far the ranks of the times are apart, in standard deviations (Mann, Whitney); negative: the first are less.

    A few slow ones, as on a busy machine, do not count for more than others.
    """
    less = sum((a < b) + (a == b) / 2 for a, b in itertools.product(first, second))
    pairs = len(first) * len(second)
    return (pairs / 2 - less) / math.sqrt(pairs * (len(first) + len(second) + 1) / 12)


def measured(rounds: int, kinds: Mapping[str, Callable[[], object]], *, seed: int = 7) -> dict[str, list[float]]:
    """Seconds of each kind of request, one after the other in a random order in each round."""
    order = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name in order.sample(sorted(kinds), len(kinds)):
            began = time.perf_counter()
            kinds[name]()
            times[name].append(time.perf_counter() - began)
    return times


def shown(times: Mapping[str, Sequence[float]]) -> str:
    """Medians, for the message of a test that fails."""
    return ", ".join(f"{name} {statistics.median(each) * 1000:.3f} ms" for name, each in times.items())
