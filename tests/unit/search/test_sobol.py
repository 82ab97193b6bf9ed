"""Sobol points: scipy's own sequence, by the seed of the sweep and the place of the trial."""

import pytest
from scipy.stats.qmc import Sobol, discrepancy

from app.domain.errors import BadSpec
from app.search.sobol import suggest
from tests.builders.search_questions import CONDITIONAL, NUMBERS, PLAIN, question_of, space_of

SPACE = space_of(NUMBERS)


def points(count, space=SPACE, **options):
    return [suggest(question_of("sobol", space, number=number, **options)).values for number in range(count)]


def test_trials_have_the_points_of_one_sequence():
    question = question_of("sobol", SPACE)

    found = [[values[name] for name in "xyz"] for values in points(16)]

    sequence = Sobol(3, scramble=True, rng=question.sweep_seed("sobol")).random(16)
    assert found == pytest.approx(sequence * 10 - 5)


def test_another_seed_of_the_sweep_is_another_sequence():
    assert points(4, seed=1) != points(4, seed=2)


def test_points_are_more_even_than_random_ones():
    found = [[values[name] / 10 + 0.5 for name in "xyz"] for values in points(64)]

    assert discrepancy(found) < 0.002  # about 0.01 for random ones


def test_every_kind_of_parameter_gets_its_share():
    found = points(64, space_of(PLAIN))

    assert {values["kind"] for values in found} == {"a", "b", "c"}
    assert {values["flag"] for values in found} == {False, True}
    assert {values["size"] for values in found} == {4, 8, 12, 16, 20, 24, 28, 32}
    assert {values["fixed"] for values in found} == {7}
    assert sum(values["rate"] < 1e-3 for values in found) == 32


def test_parameters_that_are_not_active_are_left_out():
    found = points(32, space_of(CONDITIONAL))

    assert all(("warmup" in values) == (values["schedule"] == "cosine") for values in found)
    assert sum("warmup" in values for values in found) == 16


def test_with_conditions_no_two_trials_have_one_point():
    space = space_of(NUMBERS, "x < y")

    found = points(40, space)

    kept = [values for values in points(120) if space.holds(values)]
    assert found == kept[:40]


def test_values_are_random_where_conditions_are_hardly_ever_met():
    space = space_of(NUMBERS, "x > 4.9", "y > 4.0")

    found = suggest(question_of("sobol", space, number=3))

    assert space.holds(found.values)
    assert found.note == "drawn at random: 1000 draws of sobol did not meet `require`"


def test_a_condition_that_is_never_met_is_named():
    with pytest.raises(BadSpec, match="x > 9"):
        suggest(question_of("sobol", space_of(NUMBERS, "x > 9")))


def test_a_space_of_constants_has_one_point():
    assert points(2, space_of({"a": 1, "b": "text"})) == [{"a": 1, "b": "text"}] * 2
