"""Every method is a pure function of its question."""

import random
from itertools import pairwise

import numpy as np
import pytest

from app.search.methods import METHODS, answer
from tests.builders.search_questions import CONDITIONAL, NUMBERS, mixed_history, question_of, space_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

IN_PROCESS = sorted(set(METHODS) - {"gp"})  # it imports torch: see test_gp.py
SPACES = {"numbers": space_of(NUMBERS, "x + y < 4"), "conditional": space_of(CONDITIONAL)}


def asked(name, space, count, **options):
    return question_of(name, space, mixed_history(space, count), population=6, restarts=1, **options)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("name", IN_PROCESS)
def test_answers_do_not_depend_on_questions_before(name, space):
    first = answer(asked(name, space, 40))
    for count in range(20):
        answer(asked(name, space, count))

    assert answer(asked(name, space, 40)) == first


@pytest.mark.parametrize("name", IN_PROCESS)
def test_answers_do_not_depend_on_global_randomness(name):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the global one is meant
    first = answer(asked(name, SPACES["numbers"], 40))
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002

    assert answer(asked(name, SPACES["numbers"], 40)) == first


@pytest.mark.parametrize("name", IN_PROCESS)
def test_trials_with_other_numbers_get_other_values(name):
    space = SPACES["numbers"]

    found = [answer(asked(name, space, 40, number=number)).values for number in range(40, 45)]

    assert all(one != other for one, other in pairwise(found))


def test_an_unknown_method_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="no method guess; known: tpe, gp, cmaes, nsga2, sobol, bohb"):
        answer(question_of("guess", SPACES["numbers"]))
