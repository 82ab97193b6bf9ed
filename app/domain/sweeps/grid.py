"""The points of a grid, one after the other: in their natural order, or in a seeded one."""

import json
import threading
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Literal

from app.domain.errors import BadSpec
from app.domain.sweeps.conditions import Condition
from app.domain.sweeps.draws import generator
from app.domain.sweeps.parameters import Parameter, Value
from app.domain.sweeps.space import Space

Order = Literal["natural", "shuffled"]
# A grid of at most so many points is permuted as a whole; of a larger one those are drawn that were not drawn before.
WHOLE = 100_000
# Candidates that may break a condition before the search for points ends: in all, and of draws in a row.
MAX_MISSES, MAX_MISSES_IN_A_ROW = 1_000_000, 100_000

# Of a point an index for each parameter, 0 for one that is not active.
_Place = tuple[int, ...]


def grid_values(space: Space, place: int, *, order: Order, seed: int) -> dict[str, Value] | None:
    """The place-th point of the grid; None after the last.

    Points that differ in inactive parameters only are one point, points that break a condition are none.
    Raises BadSpec if a parameter is continuous, or if the conditions leave nearly nothing of a large grid.
    """
    found = _grid(space.key, order, seed if order == "shuffled" else 0).at(place)
    return None if found is None else _values(space, found)


def grid_size(space: Space, at_most: int) -> int:
    """Number of points, counted up to ``at_most``. Raises BadSpec as grid_values does."""
    return _grid(space.key, "natural", 0).count(at_most)


class _Grid:
    """Keeps the points that were asked for, and continues from there."""

    def __init__(self, space: Space, order: Order, seed: int) -> None:
        self._points: list[_Place] = []
        self._rest = _Points(space).natural() if order == "natural" else _Points(space).shuffled(seed)
        # Threads share what is cached, and two of them may not advance one iterator.
        self._lock = threading.Lock()
        self._refusal: BadSpec | None = None

    def at(self, place: int) -> _Place | None:
        return self._points[place] if self.count(place + 1) > place else None

    def count(self, at_most: int) -> int:
        with self._lock:
            while self._refusal is None and len(self._points) < at_most:
                try:
                    self._points.append(next(self._rest))
                except StopIteration:
                    break
                except BadSpec as error:
                    # An iterator that raised would seem to be at its end.
                    self._refusal = error
            if self._refusal is not None and len(self._points) < at_most:
                raise BadSpec(self._refusal.message, field=self._refusal.field)
            return min(len(self._points), at_most)


@lru_cache(maxsize=16)
def _grid(key: str, order: Order, seed: int) -> _Grid:
    return _Grid(Space.from_json(**json.loads(key)), order, seed)


class _Points:
    """Enumerates a space; a condition is tested as soon as every parameter that it names has its value."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._parameters = space.parameters
        self._sizes = [_size(parameter) for parameter in space.parameters]
        self._conditions = _by_depth(space)
        self._misses = 0

    def natural(self) -> Iterator[_Place]:
        """Every point once, the last parameter fastest."""
        return self._below((), {})

    def shuffled(self, seed: int) -> Iterator[_Place]:
        try:
            points = list(islice(self.natural(), WHOLE + 1))
            is_large = len(points) > WHOLE
        except BadSpec:
            # Few of very many candidates meet the conditions, and it would take too long to find them all.
            is_large = True
        if is_large:
            yield from self._drawn(seed)
        else:
            generator(seed).shuffle(points)
            yield from points

    def _below(self, place: _Place, values: dict[str, Value]) -> Iterator[_Place]:
        depth = len(place)
        if depth == len(self._parameters):
            yield place
            return
        parameter = self._parameters[depth]
        is_active = self._space.active(parameter, values)
        for index in range(self._sizes[depth] if is_active else 1):
            now = {**values, parameter.name: parameter.at(index)} if is_active else values
            if all(condition.holds(now) for condition in self._conditions[depth]):
                yield from self._below((*place, index), now)
            else:
                self._miss()

    def _miss(self) -> None:
        self._misses += 1
        if self._misses > MAX_MISSES:
            raise _nearly_empty()

    def _drawn(self, seed: int) -> Iterator[_Place]:
        source, seen, misses = generator(seed), set[_Place](), 0
        while misses < MAX_MISSES_IN_A_ROW:
            values: dict[str, Value] = {}
            place: list[int] = []
            for parameter, size in zip(self._parameters, self._sizes, strict=True):
                is_active = self._space.active(parameter, values)
                place.append(source.randrange(size) if is_active else 0)
                if is_active:
                    values[parameter.name] = parameter.at(place[-1])
            misses += 1
            if tuple(place) not in seen and self._space.holds(values):
                misses = 0
                seen.add(tuple(place))
                yield tuple(place)
        raise _nearly_empty()


def _nearly_empty() -> BadSpec:
    return BadSpec(
        "the conditions leave nearly nothing of this grid; loosen them, narrow the parameters, or use method random",
        field="require",
    )


def _size(parameter: Parameter) -> int:
    if parameter.size is None:
        raise BadSpec(
            "is continuous, so that a grid has no points; give it step or values, or use another method",
            field=f"parameters.{parameter.name}.step",
        )
    return parameter.size


def _by_depth(space: Space) -> list[list[Condition]]:
    """For each parameter the conditions of which it is the last."""
    names = [parameter.name for parameter in space.parameters]
    found: list[list[Condition]] = [[] for _ in names]
    for condition in space.conditions:
        found[max(names.index(name) for name in condition.names)].append(condition)
    return found


def _values(space: Space, place: _Place) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for parameter, index in zip(space.parameters, place, strict=True):
        if space.active(parameter, values):
            values[parameter.name] = parameter.at(index)
    return values
