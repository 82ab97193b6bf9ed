"""Importances are Optuna's own, a pure function of the question, and say nothing where nothing can be said."""

import math
import random
import warnings

import pytest
from optuna import create_study
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

from app.domain.sweeps.draws import random_values
from app.domain.sweeps.observations import Observation
from app.search.distributions import distributions_of
from app.search.importance import importance
from app.services.sweeps.search.importance import question
from tests.builders.search_questions import CONDITIONAL, PLAIN, completed, space_of


def history_of(space, count, objectives=1):
    source = random.Random(count)
    drawn = [random_values(space, number) for number in range(count)]
    return [
        completed(number, values, *(worth(values, source) for _ in range(objectives)))
        for number, values in enumerate(drawn)
    ]


def worth(values, source):
    """The first parameter counts most, others little."""
    return (math.log10(values["rate"] + 1e-9) + 3) ** 2 + values.get("warmup", 0.1) + source.gauss(0, 0.1)


def optunas(space, history, share_of_best, objectives=1):
    """By a study of Optuna that has the same trials."""
    study = create_study(directions=["minimize"] * objectives)
    distributions = distributions_of(space)
    for each in history:
        params = {name: value for name, value in each.values.items() if name in distributions}
        study.add_trial(
            create_trial(
                state=TrialState.COMPLETE,
                values=list(each.objectives),
                params=params,
                distributions={name: distributions[name] for name in params},
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=share_of_best))


@pytest.mark.parametrize("objectives", [1, 2])
@pytest.mark.parametrize("count", [10, 80])
@pytest.mark.parametrize("parameters", [PLAIN, CONDITIONAL])
def test_importances_equal_those_of_optuna(parameters, count, objectives):
    space = space_of(parameters)
    history = history_of(space, count, objectives)
    asked = question(space, history, objectives=objectives)

    found = importance(asked)

    assert found == pytest.approx(optunas(space, history, asked["share_of_best"], objectives))
    assert sum(found.values()) == pytest.approx(1.0)


def test_what_matters_is_found():
    space = space_of(PLAIN)

    found = importance(question(space, history_of(space, 200), objectives=1))

    assert max(found, key=lambda name: found[name]) == "rate"
    assert found["rate"] > 0.7


def test_constants_and_parameters_that_were_never_active_are_left_out():
    plain, conditional = space_of(PLAIN), space_of(CONDITIONAL)
    linear = [each for each in history_of(conditional, 60) if each.values["schedule"] == "linear"]

    assert "fixed" not in importance(question(plain, history_of(plain, 20), objectives=1))
    assert set(importance(question(conditional, linear, objectives=1))) == {"schedule", "power", "rate"}


@pytest.mark.filterwarnings("ignore:Target and region quantiles:UserWarning")  # the process ignores all
def test_equal_values_and_constant_spaces_have_no_importance():
    space, constant = space_of(PLAIN), space_of({"fixed": 7})
    equal = [completed(number, random_values(space, number), 1.0) for number in range(20)]

    assert set(importance(question(space, equal, objectives=1)).values()) == {0.0}
    assert importance(question(constant, [completed(i, {"fixed": 7}, float(i)) for i in range(20)], objectives=1)) == {}


def test_only_completed_trials_count_and_their_order_does_not():
    space = space_of(PLAIN)
    history = history_of(space, 40)
    asked = question(space, history, objectives=1)
    stopped = Observation(number=99, values=random_values(space, 99), state="stopped", objectives=(-9.0,), step=1)

    mixed = {**asked, "observations": [stopped.to_json(), *reversed(asked["observations"])]}

    assert importance(mixed) == importance(asked)
