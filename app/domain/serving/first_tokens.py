"""Times from a request to the first token of its streamed answer, counted in classes so that gateways' add up."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import zip_longest

# Upper ends of the classes, in seconds; the last class has none.
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60, 180, 600)
CLASSES = len(BOUNDS) + 1
WINDOW_SECONDS = 300.0  # of which the counts are


def class_of(seconds: float) -> int:
    return bisect_left(BOUNDS, seconds)


def added(counts: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(one + other for one, other in zip_longest(counts, more, fillvalue=0))


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Seconds that this share of the answers did not exceed, interpolated within their class; None without answers.

    Beyond the last bound it is that bound.
    """
    rank = share * sum(counts)
    if not rank:
        return None
    below = 0
    for number, count in enumerate(counts[: len(BOUNDS)]):
        if below + count >= rank:
            low = BOUNDS[number - 1] if number else 0.0
            return low + (BOUNDS[number] - low) * (rank - below) / count
        below += count
    return float(BOUNDS[-1])
