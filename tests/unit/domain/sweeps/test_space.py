"""Spaces: order, activity, sets of values by hand, and the sets that are checked before a sweep starts."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps.draws import one_draw, random_values, seed_of
from app.domain.sweeps.space import Space
from tests.unit.domain.sweeps.drawn_spaces import PARAMETERS, small_grids

SCHEDULES = {
    "warmup": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"schedule": ["cosine", "linear"]}},
    "schedule": {"type": "categorical", "values": ["constant", "linear", "cosine"]},
    "cycles": {"type": "int", "min": 1, "max": 4, "only_if": {"schedule": ["cosine"], "restarts": [True]}},
    "restarts": {"type": "bool"},
}


def refused(parameters: dict[str, Any], require: list[str] | None = None) -> BadSpec:
    with pytest.raises(BadSpec) as caught:
        Space.from_json(parameters, require or [])
    return caught.value


def test_parameters_come_after_those_that_they_depend_on() -> None:
    space = Space.from_json(SCHEDULES)

    assert [each.name for each in space.parameters] == ["restarts", "schedule", "cycles", "warmup"]


def test_parameters_without_dependencies_are_in_the_order_of_their_names() -> None:
    assert [each.name for each in Space.from_json({"b": 1, "a": 2, "c": 3}).parameters] == ["a", "b", "c"]


@given(st.permutations(["x", "y", "z"]), st.integers(0, 2**63 - 1))
def test_values_do_not_depend_on_the_order_of_the_document(names: list[str], seed: int) -> None:
    ranges = {"x": {"type": "double", "min": 0, "max": 1}, "y": {"type": "int", "min": 1, "max": 99}, "z": 3}
    spaces = [Space.from_json({name: ranges[name] for name in order}) for order in (sorted(names), names)]

    assert random_values(spaces[0], seed) == random_values(spaces[1], seed)


@given(small_grids())
def test_a_space_is_read_back_as_it_was_written(space: Space) -> None:
    again = Space.from_json(**space.to_json())

    assert (again.key, again, hash(again)) == (space.key, space, hash(space))


@given(st.dictionaries(st.sampled_from("abcdefgh"), PARAMETERS, min_size=1), st.integers(0, 2**63 - 1))
def test_drawn_values_pass_the_check_by_hand(parameters: dict[str, Any], seed: int) -> None:
    space = Space.from_json(parameters)

    values = random_values(space, seed)

    assert space.check(values, field="enqueue.0") == values


def test_only_active_parameters_have_values() -> None:
    space = Space.from_json(SCHEDULES)

    drawn = [one_draw(space, random.Random(seed)) for seed in range(200)]

    assert {frozenset(values) for values in drawn if values["schedule"] == "constant"} == {
        frozenset({"schedule", "restarts"})
    }
    assert all(("cycles" in values) == (values["schedule"] == "cosine" and values["restarts"]) for values in drawn)


@pytest.mark.parametrize(
    ("values", "field", "part"),
    [
        ({"schedule": "cosine", "restarts": False}, "enqueue.0.warmup", "is missing"),
        ({"schedule": "constant", "restarts": False, "warmup": 0.1}, "enqueue.0.warmup", "only active if schedule"),
        ({"schedule": "constant", "restarts": False, "x": 1}, "enqueue.0.x", "no parameter"),
        ({"schedule": "constant", "restarts": 0}, "enqueue.0.restarts", "one of false, true"),
        ({"schedule": "linear", "restarts": True, "warmup": 0.3}, "enqueue.0.warmup", "from 0.0 to 0.2"),
        ({"schedule": "linear", "restarts": True, "warmup": [0.3]}, "enqueue.0.warmup", "outside"),
        ({"schedule": "linear", "restarts": True, "warmup": 0.2}, "enqueue.0", "warmup < 0.2"),
    ],
)
def test_values_by_hand_are_checked(values: dict[str, Any], field: str, part: str) -> None:
    space = Space.from_json(SCHEDULES, ["warmup < 0.2"])

    with pytest.raises(BadSpec, match=part) as caught:
        space.check(values, field="enqueue.0")

    assert caught.value.field == field


def test_values_by_hand_get_the_form_of_drawn_ones() -> None:
    space = Space.from_json(
        {"a": {"type": "double", "min": 0, "max": 2}, "b": {"type": "double", "values": [1, 2]}, "c": 5}
    )

    values = space.check({"a": 1, "b": 2}, field="values")

    assert repr(values) == "{'a': 1.0, 'b': 2.0, 'c': 5}"


@pytest.mark.parametrize(
    ("parameters", "require", "field", "part"),
    [
        ({}, [], "parameters", "1 to 256"),
        ({f"a{i}": 1 for i in range(257)}, [], "parameters", "1 to 256"),
        ({"a": {"type": "bool", "only_if": {"b": [1]}}}, [], "parameters.a.only_if.b", "no other parameter"),
        ({"a": {"type": "bool", "only_if": {"a": [True]}}}, [], "parameters.a.only_if.a", "no other parameter"),
        (
            {"a": {"type": "bool", "only_if": {"b": [True]}}, "b": {"type": "bool", "only_if": {"a": [True]}}},
            [],
            "parameters.a.only_if",
            "circle",
        ),
        (
            {"a": {"type": "bool", "only_if": {"b": [7]}}, "b": {"values": [1, 2]}},
            [],
            "parameters.a.only_if.b",
            "never 7",
        ),
        (
            {"a": {"type": "bool", "only_if": {"b": [0.5]}}, "b": {"type": "double", "min": 0, "max": 1}},
            [],
            "parameters.a.only_if.b",
            "continuous",
        ),
        (
            {
                "a": {"values": [1, 2]},
                "b": {"values": [1, 2], "only_if": {"a": [1]}},
                "c": {"values": [1, 2], "only_if": {"a": [2], "b": [1]}},
            },
            [],
            "parameters.c.only_if",
            "never met",
        ),
        ({"a": 1}, ["b < 2"], "require.0", "'b' is no parameter"),
        ({"a": "x"}, ["a < 2"], "require.0", "no number"),
        ({"a": 1}, ["a < 2"] * 65, "require", "65 entries"),
        ({"a": 1}, ["a < 2", "a"], "require.1", "no comparison"),
    ],
)
def test_a_wrong_space_is_refused(parameters: dict[str, Any], require: list[str], field: str, part: str) -> None:
    error = refused(parameters, require)

    assert error.field == field
    assert part in error.message


def test_size_is_the_product_of_all_sizes() -> None:
    assert Space.from_json({"a": {"type": "bool"}, "b": {"type": "int", "min": 1, "max": 5}}).size == 10
    assert Space.from_json({"a": {"type": "bool"}, "b": {"type": "double", "min": 1, "max": 5}}).size is None


def test_examples_show_every_end_and_every_listed_value() -> None:
    examples = Space.from_json(SCHEDULES).examples()

    assert examples[:2] == [
        {"schedule": "constant", "restarts": False},
        {"schedule": "cosine", "warmup": 0.2, "restarts": True, "cycles": 4},
    ]
    assert {values["schedule"] for values in examples} == {"constant", "linear", "cosine"}
    assert {values.get("cycles") for values in examples} == {None, 1, 4}
    assert {values.get("warmup") for values in examples} == {None, 0.0, 0.2}


@given(small_grids())
def test_examples_are_distinct_and_reach_every_parameter(space: Space) -> None:
    examples = space.examples()

    free = Space(space.parameters, ())
    assert [free.check(values, field="") for values in examples] == examples
    assert len({repr(values) for values in examples}) == len(examples)
    assert {name for values in examples for name in values} == {each.name for each in space.parameters}


def test_a_seed_depends_on_sweep_number_and_purpose() -> None:
    seeds = {seed_of(sweep, number, purpose) for sweep in range(3) for number in range(30) for purpose in ("", "x")}

    assert len(seeds) == 180
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(7, 3) == 4105813266559527971


def test_values_that_break_a_condition_are_drawn_again() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 100}}, ["a <= 2"])

    assert {random_values(space, seed)["a"] for seed in range(40)} == {1, 2}


def test_a_condition_that_is_never_met_is_named() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 9}}, ["a > 0", "a > 9"])

    with pytest.raises(BadSpec, match="'a > 9' was never met in 1000 draws") as caught:
        random_values(space, 1)

    assert caught.value.field == "require"


def test_conditions_that_exclude_each_other_are_named() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 9}}, ["a > 3", "a < 3"])

    with pytest.raises(BadSpec, match=r"'a < 3' was met by .* only, never with all others"):
        random_values(space, 1)
