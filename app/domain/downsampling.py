"""Down-sampling of a metric that keeps what a person looks for: the first, the last, minima and maxima."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

Point = tuple[int, float]  # step, value

FEWEST = 4  # the two ends, the smallest and the largest
FAN_OUT = 16  # points of a summary, or summaries of one a level higher
LEVELS = 3


class Span(NamedTuple):
    """Points next to each other, reduced to the smallest and the largest of them."""

    first_step: int
    last_step: int
    low_step: int
    low: float
    high_step: int
    high: float


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


def span_of(points: Sequence[Point]) -> Span:
    """The summary of at least one point, in order."""
    low, high = min(points, key=_VALUE), max(points, key=_VALUE)
    return Span(points[0][0], points[-1][0], *low, *high)


def merged(spans: Sequence[Span]) -> Span:
    """The summary of at least one summary, in order."""
    low, high = min(spans, key=_LOW), max(spans, key=_HIGH)
    return Span(spans[0].first_step, spans[-1].last_step, low.low_step, low.low, high.high_step, high.high)


def spans_of(points: Iterable[Point], size: int) -> Iterator[Span]:
    """Summaries of so many points each; of the last ones, maybe fewer."""
    stream = iter(points)
    while group := list(islice(stream, size)):
        yield span_of(group)


def kept_steps(spans: Sequence[Span], most: int) -> list[int]:
    """The steps of at most ``most`` points, in order: the ends, and of each bucket of spans its extremes."""
    buckets = min((most - 2) // 2, len(spans))
    kept = {spans[0].first_step, spans[-1].last_step}
    for b in range(buckets):
        bucket = merged(spans[b * len(spans) // buckets : (b + 1) * len(spans) // buckets])
        kept |= {bucket.low_step, bucket.high_step}
    return sorted(kept)


_VALUE = itemgetter(1)
_LOW, _HIGH = itemgetter(3), itemgetter(5)
