"""NSGA-II: what Optuna itself suggests, with generations that follow from the observations."""

import optuna
import pytest

from app.domain.sweeps.observations import Observation
from app.search.nsga2 import suggest
from tests.builders.search_questions import completed, numbers, question_of, space_of

SPACE = space_of(
    {
        "x": {"type": "double", "min": -5.0, "max": 5.0},
        "n": {"type": "int", "min": 1, "max": 9},
        "kind": {"type": "categorical", "values": ["a", "b"]},
    }
)
POPULATION = 6


def losses(values):
    extra = 0.5 if values["kind"] == "b" else 0.0
    return (values["x"] - 1) ** 2 + values["n"] / 9 + extra, (values["x"] - 2) ** 2 + 1 / values["n"] + extra


def test_one_trial_after_the_other_is_optunas_search():
    study = optuna.create_study(directions=["minimize", "minimize"])
    history: list[Observation] = []
    for number in range(40):
        question = question_of("nsga2", SPACE, history, objectives=2, population=POPULATION)
        study.sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=question.seed % 2**32)
        trial = study.ask()
        trial.suggest_categorical("kind", ["a", "b"])
        trial.suggest_int("n", 1, 9)
        trial.suggest_float("x", -5.0, 5.0)
        study.tell(trial, losses(trial.params))

        found = suggest(question).values

        # The parents of a generation are in another order for the first trial that asks Optuna for them.
        if number % POPULATION or number < POPULATION:
            assert found == trial.params, number
        else:
            found = trial.params
        history.append(completed(number, found, *losses(found)))


def test_the_first_generation_is_random_and_later_ones_come_near_the_front():
    history: list[Observation] = []
    for number in range(160):
        values = suggest(question_of("nsga2", SPACE, history, objectives=2, population=20)).values
        history.append(completed(number, values, *losses(values)))

    first, last = ([each.values["x"] for each in part] for part in (history[:20], history[-20:]))
    assert sum(0.5 <= float(x) <= 2.5 for x in first) < 10
    assert sum(0.5 <= float(x) <= 2.5 for x in last) >= 14


def test_a_tiny_population_has_thousands_of_generations():
    history = [completed(i, {"x": i / 1000, "n": 1, "kind": "a"}, i / 7, -i / 7) for i in range(2500)]

    found = suggest(question_of("nsga2", SPACE, history, objectives=2, population=2))

    assert set(found.values) == {"x", "n", "kind"}


def test_values_that_break_a_condition_are_drawn_again():
    space = space_of(
        {"x": {"type": "double", "min": 0, "max": 1}, "y": {"type": "double", "min": 0, "max": 1}}, "x < y"
    )
    history: list[Observation] = []
    for number in range(40):
        found = suggest(question_of("nsga2", space, history, objectives=2, population=8))
        assert space.holds(found.values)
        assert found.note == ""
        history.append(completed(number, found.values, numbers(found)["x"], -numbers(found)["y"]))


@pytest.mark.parametrize("constrained", [False, True])
def test_trials_that_break_a_constraint_are_no_parents(constrained):
    """Half of the trials have the better objectives, and break the constraint."""
    history = [
        completed(i, {"x": 3.0 if i % 2 else -3.0, "n": 5, "kind": "a"}, float(i % 2 == 0), float(i % 2 == 0))
        for i in range(40)
    ]
    if constrained:
        history = [each.__class__(**{**vars(each), "violations": (float(each.number % 2) - 0.5,)}) for each in history]

    found = [
        suggest(question_of("nsga2", SPACE, history, number=number, objectives=2, population=20)).values["x"]
        for number in range(40, 60)
    ]

    assert (found.count(-3.0) > 10) is constrained
    assert (found.count(3.0) > 10) is not constrained
