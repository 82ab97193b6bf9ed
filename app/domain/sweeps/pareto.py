"""Which results are best: the smallest of one objective, the Pareto front of several."""

from collections.abc import Iterable, Sequence

from app.domain.sweeps.observations import Observation


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether it is nowhere larger and somewhere smaller."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the points that none dominates, ascending; equal points are all there."""
    # In this order a point can only be dominated by an earlier one, and then also by one of the front.
    ordered = sorted(range(len(points)), key=lambda i: tuple(points[i]))
    if points and len(points[0]) == 2:
        return _front_of_two(points, ordered)
    found: list[int] = []
    for index in ordered:
        if not any(dominates(points[kept], points[index]) for kept in found):
            found.append(index)
    return sorted(found)


def ranked(observations: Iterable[Observation]) -> list[Observation]:
    """The completed trials that break no constraint: best first and equal ones by number, or the front of several
    objectives by number.
    """
    able = [each for each in observations if each.state == "completed" and each.objectives and each.is_feasible]
    able.sort(key=lambda each: each.number)
    if able and len(able[0].objectives) > 1:
        return [able[i] for i in front([each.objectives for each in able])]
    return sorted(able, key=lambda each: each.objectives)


def _front_of_two(points: Sequence[Sequence[float]], ordered: Iterable[int]) -> list[int]:
    """By one comparison each, because every trial of a sweep may be on the front."""
    found: list[int] = []
    for index in ordered:
        first, second = points[index]
        if not found or second < points[found[-1]][1] or (first, second) == tuple(points[found[-1]]):
            found.append(index)
    return sorted(found)
