"""Down-sampling of a metric that keeps what a person looks for: the first, the last, minima and maxima."""

from collections.abc import Sequence

Point = tuple[int, float]  # step, value


def downsample(points: Sequence[Point], max_points: int) -> list[Point]:
    """At most ``max_points`` of the points, in order: the ends, and of each bucket its smallest and largest."""
    if len(points) <= max_points:
        return list(points)
    if max_points < 4:
        return [points[0], points[-1]][: max(max_points, 1)]
    inner = points[1:-1]
    buckets = (max_points - 2) // 2
    kept = {0: points[0], len(points) - 1: points[-1]}
    for b in range(buckets):
        low, high = b * len(inner) // buckets, (b + 1) * len(inner) // buckets
        for pick in (min, max):
            i = pick(range(low, high), key=lambda k: inner[k][1])
            kept[i + 1] = inner[i]
    return [kept[i] for i in sorted(kept)]
