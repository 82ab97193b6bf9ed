"""Population based training: who is replaced by a fork of whom, and the values of forks."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps.draws import random_values
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.population import (
    EXPLORE,
    Member,
    explored,
    halts_of_members,
    is_replaced,
    ordinal,
    ranked,
    replaced_by,
    replacements,
    truncated,
)
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import Method
from tests.unit.domain.sweeps.drawn_spaces import PARAMETERS, small_grids

SPACE = Space.from_json(
    {
        "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"},
        "warmup_steps": {"type": "int", "min": 0, "max": 100, "step": 10},
        "rank": {"type": "int", "min": 1, "max": 64},
        "schedule": {"type": "categorical", "values": ["constant", "linear", "cosine"]},
        "cycles": {"type": "int", "min": 2, "max": 9, "only_if": {"schedule": ["cosine"]}},
    }
)
VALUES: dict[str, Value] = {"learning_rate": 1e-3, "warmup_steps": 50, "rank": 2, "schedule": "linear"}
METHODS = [Method(name="pbt", explore=how, seed=7) for how in ("perturb", "resample")]
PERTURB, RESAMPLE = METHODS


def members(*values: float) -> list[Member]:
    return [Member(number=number, value=value) for number, value in enumerate(values)]


def pairs(population: Sequence[Member], most: int = 100) -> list[tuple[int, int]]:
    """(loser, winner), in the order of the forks' numbers."""
    return [(each.loser.number, each.winner.number) for each in replacements(population, most=most)]


@pytest.mark.parametrize(
    ("size", "replaced"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1), (7, 1), (8, 2), (11, 2), (12, 3), (40, 10)]
)
def test_the_worst_quarter_is_replaced_and_at_least_one(size: int, replaced: int) -> None:
    assert truncated(size) == replaced
    assert len(replacements(members(*map(float, range(size))), most=100)) == replaced


def test_the_worst_is_replaced_by_the_best_and_forks_are_in_the_order_of_the_losers() -> None:
    assert pairs(members(0.9, 0.1, 0.5, 0.2, 0.6, 0.4, 0.8, 0.3)) == [(0, 1), (6, 3)]
    assert pairs(members(0.8, 0.1, 0.5, 0.2, 0.6, 0.4, 0.9, 0.3)) == [(0, 3), (6, 1)]


def test_a_budget_for_fewer_forks_replaces_the_worst() -> None:
    population = members(0.8, 0.1, 0.5, 0.2, 0.6, 0.4, 0.9, 0.3)

    assert pairs(population, most=1) == [(6, 1)]
    assert pairs(population, most=0) == []


def test_a_winner_without_a_checkpoint_is_not_forked() -> None:
    population = members(0.8, 0.1, 0.5, 0.2, 0.6, 0.4, 0.9, 0.3)
    population[1] = Member(number=1, value=0.1, has_checkpoint=False)

    assert pairs(population) == [(0, 3), (6, 3)]
    population[3] = Member(number=3, value=0.2, has_checkpoint=False)
    assert pairs(population) == []


def test_a_member_that_is_no_worse_than_its_winner_stays() -> None:
    assert pairs(members(0.5, 0.5, 0.5, 0.5)) == []
    assert pairs(members(math.inf, math.inf)) == []
    assert pairs(members(math.inf, 0.5)) == [(0, 1)]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, math.inf]), max_size=20), st.integers(0, 5))
def test_no_winner_is_replaced_and_every_loser_is_worse(values: list[float], most: int) -> None:
    population = members(*values)

    found = replacements(population, most=most)

    assert len(found) <= min(most, truncated(len(values)))
    assert len({each.loser.number for each in found}) == len(found)
    assert not {each.loser.number for each in found} & {each.winner.number for each in found}
    assert all(each.loser.value > each.winner.value for each in found)
    assert found == replacements(population[::-1], most=most)
    assert [member.number for member in ranked(population[::-1])] == [member.number for member in ranked(population)]


@given(
    st.dictionaries(st.sampled_from("abcd"), PARAMETERS, min_size=1),
    st.integers(0, 99),
    st.sampled_from(METHODS),
    st.integers(0, 99),
)
def test_explored_values_stay_in_the_space(parameters: dict[str, Any], seed: int, method: Method, number: int) -> None:
    space = Space.from_json(parameters)
    values = random_values(space, seed)

    found = explored(space, values, method, number)

    assert space.check(found, field="") == found
    assert explored(space, values, method, number) == found


@given(small_grids(), st.integers(0, 99), st.sampled_from(METHODS), st.integers(0, 99))
def test_explored_values_keep_dependencies_and_conditions(space: Space, seed: int, method: Method, number: int) -> None:
    try:
        values = random_values(space, seed)
    except BadSpec:
        return  # no point meets the conditions

    found = explored(space, values, method, number)

    assert space.check(found, field="") == found


def test_perturbed_numbers_are_a_fifth_away_or_one_step() -> None:
    found = [explored(SPACE, VALUES, PERTURB, number) for number in range(100)]

    assert {round(float(each["learning_rate"]), 9) for each in found} == {0.8e-3, 1.2e-3}
    assert {each["warmup_steps"] for each in found} == {40, 60}
    assert {each["rank"] for each in found} == {1, 3}  # 1.6 and 2.4 are nearer to 2
    assert {each["schedule"] for each in found} == {"constant", "linear", "cosine"}
    assert all(("cycles" in each) == (each["schedule"] == "cosine") for each in found)


def test_perturbed_values_stop_at_the_ends() -> None:
    ends: dict[str, Value] = {"learning_rate": 1e-1, "warmup_steps": 0, "rank": 64, "schedule": "cosine", "cycles": 9}

    found = [explored(SPACE, ends, PERTURB, number) for number in range(100)]

    assert {float(each["learning_rate"]) for each in found} == {0.08, 0.1}
    assert {each["warmup_steps"] for each in found} == {0, 10}
    assert {each["rank"] for each in found} == {51, 64}
    assert {each["schedule"] for each in found} == {"linear", "cosine"}


def test_negative_numbers_are_multiplied_too() -> None:
    space = Space.from_json({"bias": {"type": "int", "min": -20, "max": -1}})

    assert {explored(space, {"bias": -10}, PERTURB, number)["bias"] for number in range(50)} == {-8, -12}
    assert {explored(space, {"bias": -2}, PERTURB, number)["bias"] for number in range(50)} == {-1, -3}


def test_resampled_values_are_the_winners_but_for_a_quarter() -> None:
    found = [explored(SPACE, VALUES, RESAMPLE, number) for number in range(400)]

    kept = [each["learning_rate"] == VALUES["learning_rate"] for each in found]
    assert 0.7 < sum(kept) / len(kept) < 0.8
    assert max(float(each["learning_rate"]) for each in found) > 1e-2


def test_where_no_draw_meets_the_conditions_the_winners_values_stay() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 100}}, ["a == 50"])

    assert explored(space, {"a": 50}, PERTURB, 3) == {"a": 50}


def test_explored_values_depend_on_the_seed_and_the_number() -> None:
    found = {str(explored(SPACE, VALUES, Method(seed=seed), number)) for seed in (1, 2) for number in range(8)}

    assert len(found) > 8
    assert set(EXPLORE) == {method.explore for method in METHODS}


def test_members_halt_at_every_interval_below_the_end() -> None:
    assert halts_of_members(100, 301) == (100, 200, 300)
    assert halts_of_members(100, 300) == (100, 200)


def test_the_reason_of_a_loser_names_winner_place_and_step() -> None:
    reason = replaced_by(3, place=8, of=8, step=200)

    assert reason == "replaced by a fork of trial 3: 8th of 8 at 200 steps"
    assert is_replaced(reason)
    assert not is_replaced("by hand (admin)")


@pytest.mark.parametrize(
    ("place", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")],
)
def test_places_are_ordinals(place: int, text: str) -> None:
    assert ordinal(place) == text
