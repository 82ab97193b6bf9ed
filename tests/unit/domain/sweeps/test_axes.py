"""Positions on axes: linear, logarithmic, and listed values at equal distances."""

import pytest

from app.domain.sweeps.axes import Axis, axis_of, axis_of_measured
from app.domain.sweeps.parameters import Parameter


def axis(name="x", **raw):
    return axis_of(Parameter.from_json(name, raw))


def test_positions_of_a_range_follow_its_scale():
    linear = axis(type="double", min=0.0, max=0.2)
    log = axis(type="double", min=1e-5, max=1e-1, scale="log")

    assert [linear.position(value) for value in (0.0, 0.05, 0.2)] == [0.0, 0.25, 1.0]
    assert [log.position(value) for value in (1e-5, 1e-3, 1e-1)] == pytest.approx([0.0, 0.5, 1.0])


def test_listed_values_have_equal_distances_and_numbers_ascend():
    sizes = axis(type="int", values=[32, 8, 16])
    kinds = axis(type="categorical", values=["linear", "cosine", "constant"])

    assert sizes.values == (8, 16, 32)
    assert [sizes.position(value) for value in (8, 16, 32)] == [0.0, 0.5, 1.0]
    assert [kinds.position(value) for value in ("linear", "cosine", "constant")] == [0.0, 0.5, 1.0]
    assert axis(type="bool").position(True) == 1.0
    assert axis(type="categorical", values=[1, True]).position(True) == 1.0
    assert kinds.position("other") is None


def test_one_value_lies_in_the_middle():
    assert axis(type="categorical", values=["a"]).position("a") == 0.5
    assert axis_of_measured("loss", [2.0]).position(2.0) == 0.5
    assert axis_of_measured("loss", []).position(0.0) == 0.5


def test_measured_values_that_differ_widely_have_a_logarithmic_axis():
    assert axis_of_measured("loss", [1.0, 3.0]).scale == "linear"
    assert axis_of_measured("loss", [1.0, 100.0]).scale == "log"
    assert axis_of_measured("reward", [0.0, 100.0]).scale == "linear"
    assert axis_of_measured("reward", [-1.0, 100.0]).scale == "linear"


@pytest.mark.parametrize("narrow", [Axis(name="x", scale="linear", low=1, high=3), axis_of_measured("x", [1e-3, 10.0])])
def test_room_at_both_ends_is_equal(narrow):
    wide = narrow.widened(0.1)

    assert wide.position(narrow.low) == pytest.approx(0.1 / 1.2)
    assert wide.position(narrow.high) == pytest.approx(1.1 / 1.2)
    assert narrow.scale == wide.scale


@pytest.mark.parametrize("value", [0.0, 5.0, -5.0])
def test_one_value_has_room_around_it(value):
    wide = axis_of_measured("loss", [value]).widened(0.04)

    assert wide.low < value < wide.high
    assert wide.position(value) == pytest.approx(0.5)


def test_ends_that_are_as_close_as_two_numbers_can_be_have_positions() -> None:
    axis = Axis(name="x", scale="linear", low=0.0, high=5e-324)

    assert [axis.position(0.0), axis.position(5e-324)] == [0.0, 1.0]
