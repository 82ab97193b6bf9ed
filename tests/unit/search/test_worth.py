"""What learning methods are for: after 40 trials they have found better values than random draws have."""

import statistics

import pytest

from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.observations import Observation
from app.search.methods import answer
from tests.builders.search_questions import NUMBERS, completed, numbers, quadratic, question_of, space_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SPACE = space_of(NUMBERS)
SEEDS = range(5)
TRIALS = 40


def best_of(name, seed):
    history: list[Observation] = []
    for number in range(TRIALS):
        values = answer(question_of(name, SPACE, history, seed=seed, population=8)).values
        history.append(completed(number, values, quadratic(values)))
    return min(each.objectives[0] for each in history)


def best_at_random(seed):
    return min(quadratic(random_values(SPACE, seed_of(seed, number))) for number in range(TRIALS))


@pytest.mark.parametrize(("name", "share"), [("tpe", 0.5), ("cmaes", 0.5), ("nsga2", 1.0)])
def test_a_method_that_learns_finds_better_values_than_random(name, share):
    random = statistics.median(best_at_random(seed) for seed in SEEDS)

    assert statistics.median(best_of(name, seed) for seed in SEEDS) < share * random


def test_one_value_that_matters_is_found_among_many_that_do_not():
    space = space_of({**NUMBERS, **{f"idle{i}": {"type": "double", "min": 0, "max": 1} for i in range(6)}})
    history: list[Observation] = []
    for number in range(80):
        found = answer(question_of("tpe", space, history))
        history.append(completed(number, found.values, (numbers(found)["x"] - 1) ** 2))

    assert statistics.fmean(each.objectives[0] for each in history[-20:]) < 0.3 * statistics.fmean(
        each.objectives[0] for each in history[:20]
    )
