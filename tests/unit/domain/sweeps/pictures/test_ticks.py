"""Ticks at round values with labels of no more decimals than needed."""

import pytest

from app.domain.sweeps.axes import Axis
from app.domain.sweeps.pictures.ticks import text_of, ticks, ticks_with_ends


def linear(low, high, **more):
    return Axis(name="x", scale="linear", low=low, high=high, **more)


def log(low, high):
    return Axis(name="x", scale="log", low=low, high=high)


def labels(axis, most=5):
    return [tick.label for tick in ticks(axis, most)]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (linear(0, 1), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (linear(1.38, 2.61), ["1.5", "2.0", "2.5"]),
        (linear(0.1, 0.3), ["0.10", "0.15", "0.20", "0.25", "0.30"]),
        (linear(-1, 1), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]),
        (linear(0, 25_000), ["0", "5000", "10,000", "15,000", "20,000", "25,000"]),
        (linear(0, 3e7), ["0", "1e7", "2e7", "3e7"]),
        (linear(0, 4e-4), ["0", "1e-4", "2e-4", "3e-4", "4e-4"]),
        (linear(0, 2, is_whole=True), ["0", "1", "2"]),
        (linear(3, 3), ["3"]),
        (log(1e-5, 1e-3), ["1e-5", "1e-4", "1e-3"]),
        (log(0.01, 100), ["0.01", "0.1", "1", "10", "100"]),
        (log(1e-9, 1), ["1e-9", "1e-7", "1e-5", "1e-3", "1e-1"]),
        (log(2, 40), ["2", "5", "10", "20"]),
        (log(3, 5), ["3", "4", "5"]),
        (Axis(name="x", scale="listed", values=("a", "b", "c")), ["a", "b", "c"]),
        (Axis(name="x", scale="listed", values=tuple(range(10))), ["0", "2", "4", "6", "8"]),
        (Axis(name="x", scale="listed", values=()), []),
    ],
)
def test_ticks_are_round_and_have_equal_decimals(axis, expected):
    assert labels(axis) == expected


@pytest.mark.parametrize("axis", [linear(1.31, 1.3100004), linear(-3e300, 3e300), log(1.0, 1.01), log(5e-324, 1.7e308)])
def test_there_are_ticks_on_every_axis_and_none_outside(axis):
    found = ticks(axis, 5)

    assert ticks(axis, 1)
    assert 1 <= len(found) <= 12
    assert all(-1e-6 <= tick.position <= 1 + 1e-6 for tick in found)


def test_ends_are_labelled_as_the_other_ticks_are():
    assert [tick.label for tick in ticks_with_ends(linear(0.0, 0.2), 5)] == ["0.00", "0.05", "0.10", "0.15", "0.20"]
    assert [tick.label for tick in ticks_with_ends(linear(1.473, 2.551), 4)] == ["1.473", "2.0", "2.551"]
    assert next(tick.label for tick in ticks_with_ends(log(2e-5, 1e-3), 6)) == "2e-5"
    assert [tick.label for tick in ticks_with_ends(linear(4, 32, is_whole=True), 3)] == ["4", "10", "20", "30", "32"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "true"),
        ("a", "a"),
        (8, "8"),
        (12000, "12,000"),
        (0.00021, "2.1e-4"),
        (1.41234, "1.412"),
        (12345.6, "12,346"),
        (-3, "−3"),
        (2.0, "2"),
    ],
)
def test_values_are_short(value, expected):
    assert text_of(value) == expected
