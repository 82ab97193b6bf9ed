"""Down-sampling of a metric that keeps what a person looks for: the first, the last, minima and maxima."""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from operator import itemgetter

Point = tuple[int, float]  # step, value

FEWEST = 4  # the two ends, the smallest and the largest


def downsample(points: Iterable[Point], count: int, most: int) -> list[Point]:
    """At most ``most`` of the points, in order: the ends, and of each bucket its smallest and largest.

    ``points`` is read once, a bucket at a time, so that a long series need not fit into memory. It may turn out longer
    than ``count``, because a job goes on. Raises ValueError for ``most`` below FEWEST.
    """
    if most < FEWEST:
        raise ValueError(f"at least {FEWEST} points are needed for the ends and the extremes, not {most}")
    stream = iter(points)
    if count <= most:
        return list(islice(stream, most))
    kept = list(islice(stream, 1))
    inner, buckets = count - 2, (most - 2) // 2
    for b in range(buckets):
        size = (b + 1) * inner // buckets - b * inner // buckets
        kept += _extremes(islice(stream, size))
    return kept + list(deque(stream, maxlen=1))


def _extremes(points: Iterable[Point]) -> list[Point]:
    """The smallest and the largest, in the order in which they came; a single one when they are the same."""
    bucket = list(points)
    if not bucket:
        return []
    low, high = min(bucket, key=_VALUE), max(bucket, key=_VALUE)
    return [low] if low[0] == high[0] else sorted((low, high))


_VALUE = itemgetter(1)
