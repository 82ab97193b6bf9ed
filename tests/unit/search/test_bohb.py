"""BOHB: TPE over the highest rung with enough values, and random draws beside it."""

import random
import statistics
from dataclasses import replace

import pytest

from app.domain.sweeps.draws import random_values, seed_of
from app.domain.sweeps.observations import Observation
from app.search import bohb, tpe
from app.search.question import FoundValues
from tests.builders.search_questions import NUMBERS, PLAIN, completed, numbers, quadratic, question_of, space_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SPACE = space_of(NUMBERS)
AT_RANDOM = FoundValues({}, "drawn at random, as a third of all").note


def reported(number, *reports, state="stopped", objective=None):
    """A trial with (rung, value) reports; one that has ended has its last value as objective."""
    value = objective if objective is not None else reports[-1][1] if reports else None
    return Observation(
        number=number,
        values=random_values(SPACE, number),
        state=state,
        objectives=(value,) if state in ("completed", "stopped") and value is not None else (),
        step=reports[-1][0] if reports and state == "stopped" else 0,
        reports=tuple(reports),
    )


def halving(count, *, best_at=(100, 300, 900)):
    """Trials as successive halving leaves them: a third of those of each rung has come to the next."""
    found = []
    for number in range(count):
        value = quadratic(random_values(SPACE, number))
        rungs = [rung for i, rung in enumerate(best_at) if number % 3**i == 0]
        state = "completed" if len(rungs) == len(best_at) else "stopped"
        found.append(reported(number, *((rung, value + 100 / rung) for rung in rungs), state=state))
    return found


def asked(history, *, number=None, **options):
    return question_of("bohb", SPACE, history, number=number, **options)


def modelled(history, **options):
    """The first answer from here on that is not drawn at random."""
    for number in range(len(history), len(history) + 50):
        question = asked(history, number=number, **options)
        found = bohb.suggest(question)
        if found.note != AT_RANDOM:
            return question, found
    raise AssertionError("50 draws in a row were random")


@pytest.mark.parametrize(
    ("count", "rung"), [(9, None), (10, 100), (27, 100), (28, 300), (81, 300), (82, bohb.END), (200, bohb.END)]
)
def test_the_highest_rung_with_enough_values_is_taken(count, rung):
    assert bohb.chosen_rung(halving(count), 10) == rung


def test_a_rung_needs_more_values_than_the_space_has_parameters():
    assert bohb.fewest(question_of("bohb", SPACE, startup_trials=1)) == 5
    assert bohb.fewest(question_of("bohb", space_of(PLAIN), startup_trials=1)) == 9  # a constant is none
    assert bohb.fewest(question_of("bohb", SPACE, startup_trials=20)) == 20


def test_values_that_are_not_finite_are_none():
    history = [reported(i, (100, float("inf"))) for i in range(20)] + [completed(20, {"x": 1.0}, float("nan"))]

    assert bohb.chosen_rung(history, 1) is None


def test_of_the_trials_those_count_that_have_a_value_at_the_rung():
    history = [
        reported(0, (100, 5.0), (300, 4.0), state="completed", objective=3.0),
        reported(1, (100, 7.0)),
        reported(2, (100, 6.0), (300, 2.0), state="running"),
        reported(3, (100, 1.0), state="running"),
        reported(4, state="failed"),
        completed(5, random_values(SPACE, 5), 0.5),
    ]

    found = list(bohb.at_rung(history, 300))

    assert [(each.number, each.state, each.objectives) for each in found] == [
        (0, "completed", (4.0,)),
        (2, "completed", (2.0,)),
        (3, "running", ()),
    ]


def test_values_are_random_until_a_rung_has_enough():
    question = asked(halving(9))

    assert bohb.suggest(question) == FoundValues(random_values(SPACE, question.seed))


def test_a_third_of_the_values_is_random():
    history = halving(40)

    found = [bohb.suggest(asked(history, number=number)) for number in range(40, 220)]

    drawn = [each for each in found if each.note == AT_RANDOM]
    assert len(drawn) == pytest.approx(60, abs=15)
    first = next(number for number in range(40, 220) if found[number - 40].note == AT_RANDOM)
    assert drawn[0].values == random_values(SPACE, seed_of(0, first))


def test_the_others_are_those_of_tpe_over_the_rung():
    history = halving(40)
    question, found = modelled(history)

    at_300 = [
        completed(each.number, each.values, dict(each.reports)[300]) for each in history if 300 in dict(each.reports)
    ]
    assert found.values == tpe.suggest(replace(question, observations=tuple(at_300))).values
    assert found.note == f"by {len(at_300)} values at rung 300"


def test_the_end_is_above_all_rungs():
    _, found = modelled(halving(100))

    assert found.note == "by 12 ends of trials"


def test_values_do_not_depend_on_the_order_in_which_trials_are_known():
    history = [*halving(60), *(reported(60 + i, (100, 3.0), state="running") for i in range(4))]
    question, found = modelled(history)
    mixed = [*history]
    random.Random(1).shuffle(mixed)
    ordered = tuple(sorted(mixed, key=lambda each: each.number))  # as question_of of the protocol does

    assert bohb.suggest(replace(question, observations=ordered)) == found
    assert bohb.chosen_rung(mixed, 10) == bohb.chosen_rung(history, 10)


def test_values_are_near_the_best_of_the_rung():
    history = [
        reported(number, (100, quadratic(random_values(SPACE, number)))) for number in range(60)
    ]  # nothing has got further

    found = [bohb.suggest(asked(history, number=number)) for number in range(60, 120)]

    by_model = [quadratic(numbers(each)) for each in found if each.note != AT_RANDOM]
    drawn = [quadratic(numbers(each)) for each in found if each.note == AT_RANDOM]
    assert statistics.median(by_model) < 0.5 * statistics.median(drawn)


def test_conditions_hold_for_random_values_and_for_those_of_the_model():
    space = space_of(NUMBERS, "x + y < 1")
    history = [
        Observation(number=i, values=random_values(space, i), state="stopped", reports=((100, float(i)),))
        for i in range(20)
    ]

    found = [bohb.suggest(question_of("bohb", space, history, number=number)) for number in range(20, 50)]

    assert all(space.holds(each.values) for each in found)
    assert {each.note for each in found} == {AT_RANDOM, "by 20 values at rung 100"}


def test_values_are_found_where_conditions_are_hardly_ever_met():
    space = space_of(NUMBERS, "x > 4.9", "y > 4.4")

    found = [bohb.suggest(question_of("bohb", space, number=number)) for number in range(10)]

    assert all(space.holds(each.values) for each in found)
    assert {each.note for each in found} == {"", "drawn at random: 1000 draws of bohb did not meet `require`"}
