"""Curves as small as a word."""

import math

from app.web.sparkline import HEIGHT, WIDTH, sparkline


def test_a_curve_fills_its_picture():
    found = sparkline("loss", [3.0, 1.0, 2.0])

    assert found is not None
    assert found.lines == [f"2.0,2.0 {WIDTH / 2:.1f},{HEIGHT - 2:.1f} {WIDTH - 2:.1f},{HEIGHT / 2:.1f}"]
    assert found.label == "loss: 3 at first, 2 now"


def test_values_that_are_not_finite_break_the_line_and_are_told():
    found = sparkline("loss", [3.0, 1.0, math.nan, 2.0, math.inf])

    assert found is not None
    assert len(found.lines) == 2
    assert found.label == "loss: 3 at first, 2 now, not finite 2 times"


def test_a_constant_is_a_line_and_a_point_is_none():
    found = sparkline("loss", [1.0, 1.0])

    assert found is not None
    assert len(found.lines[0].split()) == 2
    assert sparkline("loss", [1.0, math.nan]) is None
    assert sparkline("loss", []) is None
