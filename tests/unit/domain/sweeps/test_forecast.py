"""What one more device hour is likely to bring."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.sweeps.forecast import FEWEST, RECENT, Forecast, expected_gain, forecast

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)
TRIALS = st.floats(0.01, 1e4)


def found(values, *, best=None, sign=1.0, completed=20, device_hours=10.0) -> Forecast:
    """Two trials in an hour, unless said otherwise."""
    able = [value for value in values if value is not None]
    best = (min(able) if sign > 0 else max(able)) if best is None else best
    made = forecast(values, best=best, sign=sign, completed=completed, device_hours=device_hours)
    assert made is not None
    return made


@given(VALUES, TRIALS)
def test_a_gain_is_never_negative_and_never_more_than_the_range(values, trials):
    assert 0.0 <= expected_gain(sorted(values), trials) <= max(values) - min(values) + 1e-6


@given(VALUES, TRIALS, TRIALS)
def test_a_gain_grows_with_the_trials(values, some, more):
    ranked = sorted(values)

    assert expected_gain(ranked, some) <= expected_gain(ranked, some + more) + 1e-9


@given(st.floats(-1e6, 1e6), st.integers(2, 40), TRIALS)
def test_nothing_is_gained_where_all_are_equal(value, count, trials):
    assert expected_gain([value] * count, trials) == 0.0


@given(VALUES, st.floats(0.1, 100), st.floats(-1e3, 1e3))
def test_a_gain_has_the_scale_of_the_values(values, factor, shift):
    ranked = sorted(values)

    scaled = expected_gain([factor * value + shift for value in ranked], 3)

    assert scaled == pytest.approx(factor * expected_gain(ranked, 3), rel=1e-6, abs=1e-6)


def test_a_gain_is_the_difference_of_two_means_of_smallest_draws():
    source = random.Random(3)
    ranked = sorted(source.gauss(0, 1) for _ in range(12))
    rounds = 20_000

    means = [statistics.fmean(min(source.choices(ranked, k=draws)) for _ in range(rounds)) for draws in (12, 12 + 5)]

    assert expected_gain(ranked, 5) == pytest.approx(means[0] - means[1], abs=0.02)


def test_the_pace_is_of_the_device_hours_that_all_trials_took():
    made = found([5.0, 4.0, 3.0, 2.0, 1.0], completed=5, device_hours=2.0)

    assert made.trials == 2.5
    assert made.expected_improvement == expected_gain([1.0, 2.0, 3.0, 4.0, 5.0], 2.5) > 0
    assert made.expected_best_after_an_hour == 1.0 - made.expected_improvement


def test_of_an_objective_that_is_maximized_the_best_rises():
    falling, rising = found([1.0, 2.0, 4.0, 8.0, 9.0]), found([-1.0, -2.0, -4.0, -8.0, -9.0], sign=-1.0)

    assert rising.expected_improvement == falling.expected_improvement > 0
    assert rising.expected_best_after_an_hour == -falling.expected_best_after_an_hour > -1.0


def test_recent_trials_count_alone():
    recent = [float(value) for value in range(1, RECENT + 1)]

    assert found([1e9, 1.0, *recent]) == found(recent)


def test_what_is_gained_counts_only_below_an_older_best():
    values = [1.0, 1.1, 1.2, 1.3, 1.4]

    assert found(values, best=0.9).expected_improvement == 0.0
    assert found(values, best=0.9).expected_best_after_an_hour == 0.9
    near = found(values, best=0.999).expected_improvement
    assert near == pytest.approx(found(values).expected_improvement - 0.001)


def test_trials_that_break_a_constraint_are_no_gain():
    values = [1.0, 2.0, 3.0, 4.0, 5.0]

    half = found([*values, *[None] * 5], completed=20)

    assert half == found([*values, *[5.0] * 5], completed=20)


@pytest.mark.parametrize(
    ("values", "device_hours"),
    [([1.0] * (FEWEST - 1), 1.0), ([None] * 9, 1.0), ([1.0] * 9, 0.0), ([-1.7e308, 1.7e308, 0.0, 1.0, 2.0], 1.0)],
)
def test_too_little_is_known_for_a_forecast(values, device_hours):
    assert forecast(values, best=1.0, sign=1.0, completed=9, device_hours=device_hours) is None
