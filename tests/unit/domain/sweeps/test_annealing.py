"""Annealing: draws around good trials, closer and closer."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import BadSpec
from app.domain.sweeps.annealing import anneal_values
from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.space import Space
from tests.unit.domain.sweeps.drawn_spaces import PARAMETERS

SPACE = Space.from_json(
    {
        "rate": {"type": "double", "min": 1e-5, "max": 1e-1, "scale": "log"},
        "rank": {"type": "int", "min": 1, "max": 64, "scale": "log"},
        "batch": {"type": "int", "min": 4, "max": 64, "step": 4},
        "dropout": {"type": "double", "min": 0, "max": 0.5, "step": 0.05},
        "schedule": {"type": "categorical", "values": ["linear", "cosine", "constant"]},
        "warmup": {"type": "double", "min": 0, "max": 0.2, "only_if": {"schedule": ["cosine"]}},
    }
)
GOOD: dict[str, Value] = {"rate": 1e-3, "rank": 8, "batch": 32, "dropout": 0.25, "schedule": "cosine", "warmup": 0.1}


def completed(number: int, value: float, values: Mapping[str, Value] = GOOD) -> Observation:
    return Observation(number=number, values=values, state="completed", objectives=(value,))


@given(st.dictionaries(st.sampled_from("abcd"), PARAMETERS, min_size=1), st.integers(0, 12), st.integers(0, 99))
def test_values_stay_in_the_space(parameters: dict[str, Any], number: int, seed: int) -> None:
    space = Space.from_json(parameters)
    earlier = [completed(i, float(i), random_values(space, i)) for i in range(number)]

    values = anneal_values(space, earlier, seed)

    assert space.check(values, field="") == values
    assert anneal_values(space, earlier, seed) == values


def test_without_trials_it_draws_from_the_whole_space() -> None:
    rates = [float(anneal_values(SPACE, [], seed)["rate"]) for seed in range(200)]

    assert min(rates) < 1e-4
    assert max(rates) > 1e-2


def test_the_neighbourhood_of_good_values_shrinks() -> None:
    many = [completed(i, 1.0) for i in range(1_000)]

    drawn = [anneal_values(SPACE, many, seed) for seed in range(100)]

    assert all(0.9e-3 < float(values["rate"]) < 1.1e-3 for values in drawn)
    assert {values["rank"] for values in drawn} <= {7, 8, 9}
    assert {values["batch"] for values in drawn} == {32}
    assert {values["dropout"] for values in drawn} == {0.25}
    assert sum(values["schedule"] == "cosine" for values in drawn) >= 95


def test_good_values_at_an_end_keep_the_neighbourhood_inside() -> None:
    many = [completed(i, 1.0, {**GOOD, "rate": 1e-5}) for i in range(90)]

    drawn = [float(anneal_values(SPACE, many, seed)["rate"]) for seed in range(100)]

    # A tenth of four decades, from the end.
    assert all(1e-5 <= rate <= 10**-4.6 for rate in drawn)


def test_better_trials_are_chosen_more_often() -> None:
    worse = [completed(i, 2.0 + i, {**GOOD, "schedule": "linear"}) for i in range(500)]

    drawn = [anneal_values(SPACE, [*worse, completed(900, 1.0)], seed, shrink_coef=9.0) for seed in range(300)]

    assert 120 < sum(values["schedule"] == "cosine" for values in drawn) < 180


def test_with_a_mean_rank_of_1_only_the_best_is_chosen() -> None:
    worse = [completed(i, 2.0, {**GOOD, "schedule": "linear"}) for i in range(500)]

    drawn = [
        anneal_values(SPACE, [*worse, completed(900, 1.0)], seed, avg_best_idx=1, shrink_coef=9) for seed in range(50)
    ]

    assert {values["schedule"] for values in drawn} == {"cosine"}


def test_infeasible_stopped_failed_and_running_trials_come_later_or_not_at_all() -> None:
    def other(schedule: str, **more: Any) -> Observation:
        found = {"state": "completed", "objectives": (0.0,), "number": 1, **more}
        return Observation(values={**GOOD, "schedule": schedule}, **found)

    earlier = [
        other("linear", violations=(1.0,)),
        other("linear", state="stopped", step=100),
        other("constant", state="failed", objectives=()),
        other("constant", state="running", objectives=()),
        completed(9, 5.0),
    ]

    drawn = [anneal_values(SPACE, earlier, seed, avg_best_idx=1, shrink_coef=1e6) for seed in range(50)]

    assert {values["schedule"] for values in drawn} == {"cosine"}


def test_it_is_better_than_random_on_a_smooth_function() -> None:
    space = Space.from_json({name: {"type": "double", "min": -5, "max": 5} for name in "abc"})

    def value(values: Mapping[str, Value]) -> float:
        return math.fsum((float(each) - 1.0) ** 2 for each in values.values())

    def search(sweep: int, *, anneal: bool) -> float:
        earlier: list[Observation] = []
        for number in range(60):
            seed = seed_of(sweep, number)
            values = anneal_values(space, earlier, seed) if anneal else random_values(space, seed)
            earlier.append(completed(number, value(values), values))
        return min(each.objectives[0] for each in earlier)

    assert sum(search(i, anneal=True) for i in range(10)) < 0.5 * sum(search(i, anneal=False) for i in range(10))


def test_conditions_are_met() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 100}}, ["a <= 5"])

    assert all(int(anneal_values(space, [completed(1, 0.0, {"a": 9})], seed)["a"]) <= 5 for seed in range(20))


def test_conditions_that_are_never_met_are_named() -> None:
    space = Space.from_json({"a": {"type": "int", "min": 1, "max": 100}}, ["a < 1"])

    with pytest.raises(BadSpec, match="'a < 1' was never met"):
        anneal_values(space, [], 1)
