"""TPE: what Optuna itself suggests for the same seed and history, and what becomes of `require`."""

import random

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from app.domain.errors import BadSpec
from app.domain.sweeps.observations import Observation
from app.search.tpe import suggest
from tests.builders.search_questions import CONDITIONAL, PLAIN, completed, mixed_history, numbers, question_of, space_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

PLAIN_DISTRIBUTIONS = {
    "x": FloatDistribution(-5.0, 5.0),
    "rate": FloatDistribution(1e-5, 1e-1, log=True),
    "part": FloatDistribution(0.1, 0.9, step=0.1),
    "size": IntDistribution(4, 32, step=4),
    "width": IntDistribution(1, 300, log=True),
    "kind": CategoricalDistribution(["a", "b", "c"]),
    "flag": CategoricalDistribution([False, True]),
}
CONDITIONAL_DISTRIBUTIONS = {
    "schedule": CategoricalDistribution(["linear", "cosine"]),
    "warmup": FloatDistribution(0.0, 0.2),
    "power": IntDistribution(1, 4),
    "rate": FloatDistribution(0.0, 1.0),
}
STATES = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "running": TrialState.RUNNING}


def optunas_study(question, distributions, *, group=False):
    """A study as a user of Optuna makes it."""
    sampler = optuna.samplers.TPESampler(
        seed=question.seed % 2**32, n_startup_trials=10, multivariate=True, group=group, constant_liar=True
    )
    study = optuna.create_study(sampler=sampler)
    for each in question.observations:
        if each.state == "failed":
            continue
        params = {name: value for name, value in each.values.items() if name in distributions}
        study.add_trial(
            create_trial(
                state=STATES[each.state],
                value=each.objectives[0] if each.state == "completed" else None,
                params=params,
                distributions={name: distributions[name] for name in params},
                intermediate_values={each.step: each.objectives[0]} if each.state == "stopped" else {},
                constraints={str(i): value for i, value in enumerate(each.violations)},
            )
        )
    return study


@pytest.mark.parametrize("count", [0, 5, 40, 200])
@pytest.mark.parametrize("constraints", [0, 2])
def test_values_are_those_of_optuna_for_the_same_seed_and_history(count, constraints):
    space = space_of(PLAIN)
    question = question_of("tpe", space, mixed_history(space, count, constraints=constraints))

    found = suggest(question)

    expected = optunas_study(question, PLAIN_DISTRIBUTIONS).ask(dict(sorted(PLAIN_DISTRIBUTIONS.items()))).params
    assert found.note == f"by {sum(each.state != 'failed' for each in question.observations)} trials"
    assert found.values == {**expected, "part": pytest.approx(expected["part"]), "fixed": 7}


@pytest.mark.parametrize("count", [5, 40, 200])
def test_values_of_conditional_parameters_are_those_of_optuna(count):
    space = space_of(CONDITIONAL)
    question = question_of("tpe", space, mixed_history(space, count))

    found = suggest(question)

    trial = optunas_study(question, CONDITIONAL_DISTRIBUTIONS, group=True).ask()
    trial.suggest_float("rate", 0.0, 1.0)
    trial.suggest_categorical("schedule", ["linear", "cosine"])
    if trial.params["schedule"] == "cosine":
        trial.suggest_float("warmup", 0.0, 0.2)
    else:
        trial.suggest_int("power", 1, 4)
    assert found.values == trial.params


def test_conditional_parameters_are_left_out_where_they_are_not_active():
    space = space_of(CONDITIONAL)
    history = [mixed_history(space, count) for count in (5, 30)]

    found = [
        suggest(question_of("tpe", space, known, number=number)).values for known in history for number in range(30, 60)
    ]

    assert {frozenset(values) for values in found} == {
        frozenset({"schedule", "warmup", "rate"}),
        frozenset({"schedule", "power", "rate"}),
    }
    assert all(("warmup" in values) == (values["schedule"] == "cosine") for values in found)


def test_values_of_steps_have_their_decimal_form():
    space = space_of({"part": PLAIN["part"]})

    found = {suggest(question_of("tpe", space, number=number)).values["part"] for number in range(50)}

    assert found == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}


def test_several_objectives_are_minimised_together():
    space = space_of({"x": {"type": "double", "min": -5.0, "max": 5.0}})
    source = random.Random(0)
    points = [source.uniform(-5, 5) for _ in range(60)]
    history = [completed(i, {"x": x}, (x - 1) ** 2, (x - 2) ** 2) for i, x in enumerate(points)]

    found = [
        numbers(suggest(question_of("tpe", space, history, number=number, objectives=2)))["x"]
        for number in range(60, 80)
    ]

    assert sorted(found)[5] > 0
    assert sorted(found)[14] < 3


def test_values_near_running_trials_are_avoided():
    space = space_of({"x": {"type": "double", "min": 0.0, "max": 1.0}})
    history = [completed(i, {"x": i / 20}, (i / 20 - 0.5) ** 2) for i in range(20)]
    alone = numbers(suggest(question_of("tpe", space, history, number=40)))["x"]
    running = [Observation(number=20 + i, values={"x": alone}, state="running") for i in range(20)]

    beside = numbers(suggest(question_of("tpe", space, [*history, *running], number=40)))["x"]

    assert abs(beside - alone) > 0.02


def test_values_that_break_a_condition_are_drawn_again():
    space = space_of(PLAIN, "x >= 2", "size * 2 <= 40")
    history = mixed_history(space, 40)

    found = [suggest(question_of("tpe", space, history, number=number)) for number in range(40, 60)]

    assert all(space.holds(each.values) and each.note.startswith("by ") for each in found)


def test_values_are_random_where_conditions_are_hardly_ever_met():
    space = space_of(PLAIN, "x >= 4.9", "size == 32")

    found = suggest(question_of("tpe", space))

    assert space.holds(found.values)
    assert found.note == "drawn at random: 50 draws of tpe did not meet `require`"


def test_a_condition_that_is_never_met_is_named():
    space = space_of({"x": {"type": "int", "min": 1, "max": 9}}, "x > 10")

    with pytest.raises(BadSpec, match="x > 10") as refused:
        suggest(question_of("tpe", space))

    assert refused.value.field == "require"
