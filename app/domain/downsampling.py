"""Down-sampling of a metric series that preserves its ends, minima and maxima."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

Point = tuple[int, float]  # step, value

FEWEST = 4  # both ends, minimum and maximum
FAN_OUT = 16  # points per summary, and summaries per summary of the next level
LEVELS = 3


class Span(NamedTuple):
    """Summary of consecutive points: their minimum and maximum."""

    first_step: int
    last_step: int
    low_step: int
    low: float
    high_step: int
    high: float


def downsample(points: Iterable[Point], count: int, most: int) -> list[Point]:
    """At most ``most`` of the points, in order: the ends, and of each bucket its smallest and largest.

    ``points`` is read once, a bucket at a time, so that a long series need not fit into memory. It may be longer than
    ``count``, because a running job adds points. Raises ValueError for ``most`` below FEWEST.
    """
    if most < FEWEST:
        raise ValueError(f"at least {FEWEST} points are needed for the ends and the extremes, not {most}")
    stream = iter(points)
    if count <= most:
        return list(islice(stream, most))
    selected = list(islice(stream, 1))
    inner, buckets = count - 2, (most - 2) // 2
    for b in range(buckets):
        size = (b + 1) * inner // buckets - b * inner // buckets
        selected += _extremes(islice(stream, size))
    return selected + list(deque(stream, maxlen=1))


def _extremes(points: Iterable[Point]) -> list[Point]:
    """Minimum and maximum in series order; a single point when they are the same."""
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
    """Summaries of ``size`` points each; the last may have fewer."""
    stream = iter(points)
    while group := list(islice(stream, size)):
        yield span_of(group)


def selected_steps(spans: Sequence[Span], most: int) -> list[int]:
    """The steps of at most ``most`` points, in order: the ends, and of each bucket of spans its extremes."""
    buckets = min((most - 2) // 2, len(spans))
    selected = {spans[0].first_step, spans[-1].last_step}
    for b in range(buckets):
        bucket = merged(spans[b * len(spans) // buckets : (b + 1) * len(spans) // buckets])
        selected |= {bucket.low_step, bucket.high_step}
    return sorted(selected)


_VALUE = itemgetter(1)
_LOW, _HIGH = itemgetter(3), itemgetter(5)
