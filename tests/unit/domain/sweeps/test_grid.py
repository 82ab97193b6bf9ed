"""Grids: every point that meets the conditions exactly once, in either order."""

import itertools
import threading
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps import grid
from app.domain.sweeps.grid import grid_size, grid_values
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space
from tests.unit.domain.sweeps.drawn_spaces import small_grids

Order = Literal["natural", "shuffled"]


def points(space: Space, order: Order, seed: int = 0) -> list[dict[str, Value]]:
    found = (grid_values(space, place, order=order, seed=seed) for place in itertools.count())
    return [values for values in itertools.takewhile(lambda values: values is not None, found) if values is not None]


def every_point(space: Space) -> set[str]:
    """By brute force: all combinations, without the values of inactive parameters."""
    found = set()
    for indices in itertools.product(*(range(each.size or 0) for each in space.parameters)):
        values: dict[str, Value] = {}
        for parameter, index in zip(space.parameters, indices, strict=True):
            if space.active(parameter, values):
                values[parameter.name] = parameter.at(index)
        if space.holds(values):
            found.add(repr(values))
    return found


@given(small_grids(), st.sampled_from(["natural", "shuffled"]), st.integers(0, 3))
def test_a_grid_has_each_point_once(space: Space, order: Order, seed: int) -> None:
    found = [repr(values) for values in points(space, order, seed)]

    assert len(set(found)) == len(found)
    assert set(found) == every_point(space)


@given(small_grids())
def test_the_number_of_points_is_counted(space: Space) -> None:
    number = len(every_point(space))

    assert grid_size(space, 10_000) == number
    assert grid_size(space, 3) == min(3, number)


def test_the_natural_order_varies_the_last_parameter_fastest() -> None:
    space = Space.from_json({"a": {"values": [1, 2]}, "b": {"type": "bool"}})

    assert [tuple(values.values()) for values in points(space, "natural")] == [
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ]


def test_the_shuffled_order_depends_on_the_seed_only() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 40}})

    one, other = points(space, "shuffled", 1), points(space, "shuffled", 2)

    assert one != other
    grid._grid.cache_clear()
    assert points(space, "shuffled", 1) == one


def test_places_may_be_asked_for_in_any_order() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 0, "max": 9}})

    assert grid_values(space, 7, order="natural", seed=0) == {"a": 7}
    assert grid_values(space, 2, order="natural", seed=0) == {"a": 2}
    assert grid_values(space, 10, order="natural", seed=0) is None


def test_values_that_are_equal_but_for_their_type_are_kept_apart() -> None:
    first, second = ({"a": {"type": "categorical", "values": values}} for values in (["x", 1], ["x", True]))

    assert repr(points(Space.from_json(first), "natural")) == "[{'a': 'x'}, {'a': 1}]"
    assert repr(points(Space.from_json(second), "natural")) == "[{'a': 'x'}, {'a': True}]"


HUGE = {f"a{i}": {"type": "int", "min": 1, "max": 1_000} for i in range(20)}


@pytest.mark.parametrize("order", ["natural", "shuffled"])
def test_a_huge_grid_is_not_enumerated(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "WHOLE", 1_000)
    sometimes = {"type": "bool", "only_if": {"a1": [1, 2, 3]}}
    space = Space.from_json({**HUGE, "b": sometimes}, ["a0 < a19"])

    found = [grid_values(space, place, order=order, seed=5) for place in range(200)]

    assert len({repr(values) for values in found}) == 200
    assert all(values is not None and space.holds(values) for values in found)


def test_a_condition_cuts_a_grid_as_early_as_it_can() -> None:
    space = Space.from_json(HUGE, ["a0 > 1000"])

    assert grid_values(space, 0, order="natural", seed=0) is None


def test_a_grid_without_points_has_none() -> None:
    assert points(Space.from_json({"a": {"values": [1, 2]}}, ["a > 2"]), "natural") == []


@pytest.mark.parametrize("order", ["natural", "shuffled"])
def test_a_search_for_hidden_points_ends(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MAX_MISSES", 1_000)
    monkeypatch.setattr(grid, "MAX_MISSES_IN_A_ROW", 100)
    grid._grid.cache_clear()
    space = Space.from_json({"a": HUGE["a0"], "b": HUGE["a0"], "c": HUGE["a0"]}, ["a * b * c < 0"])

    with pytest.raises(BadSpec, match="nearly nothing") as caught:
        grid_values(space, 0, order=order, seed=0)

    assert caught.value.field == "require"
    with pytest.raises(BadSpec, match="nearly nothing"):
        grid_values(space, 0, order=order, seed=0)


def test_the_few_points_of_a_huge_grid_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MAX_MISSES", 1_000)
    space = Space.from_json({"a": HUGE["a0"], "b": HUGE["a0"]}, ["a + b > 1000"])

    found = [grid_values(space, place, order="shuffled", seed=0) for place in range(100)]

    assert len({repr(values) for values in found}) == 100
    assert all(values is not None and space.holds(values) for values in found)


def test_a_continuous_parameter_has_no_grid() -> None:
    space = Space.from_json({"a": {"type": "double", "min": 0, "max": 1}})

    with pytest.raises(BadSpec, match="continuous") as caught:
        grid_values(space, 0, order="natural", seed=0)

    assert caught.value.field == "parameters.a.step"


def test_threads_share_a_grid() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 3_000}})
    found: list[Any] = []
    together = threading.Barrier(4)

    def ask() -> None:
        together.wait()
        found.append(points(space, "natural"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [len(each) for each in found] == [3_000] * 4
    assert all(each == found[0] for each in found)
