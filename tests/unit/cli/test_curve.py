"""The curve and the summary that the demo ends with."""

import math

from app.cli.client.curve import draw
from app.cli.local.demo import fall


def test_a_falling_curve_goes_from_the_upper_left_to_the_lower_right() -> None:
    lines = draw([(step, 8 * math.exp(-step / 20) + 1) for step in range(1, 101)], width=40, height=10)

    assert lines[0].startswith("    8.61 +*")
    assert lines[9].startswith("    1.05 +")
    assert lines[9].endswith("*")
    assert lines[11].split() == ["1", "100"]


def test_every_line_fits_the_width_asked_for() -> None:
    lines = draw([(step, step % 7) for step in range(1000)], width=50, height=8)

    assert max(map(len, lines)) == 10 + 50


def test_the_spread_around_the_mean_is_shown() -> None:
    lines = draw([(0, 0.0), (0, 4.0), (1, 2.0)], width=10, height=5)

    assert [line[10] for line in lines[:5]] == [":", ":", "*", ":", ":"]


def test_one_point_and_equal_points_are_no_division_by_zero() -> None:
    assert "*" in draw([(5, 2.0)], width=10, height=5)[2]
    assert draw([(1, 2.0), (2, 2.0)], width=10, height=5)[2].count("*") == 2


def test_nothing_to_draw_is_no_line() -> None:
    assert draw([]) == []


def test_the_fall_is_reported_in_numbers() -> None:
    assert fall([(step, 8.0 if step < 50 else 2.0) for step in range(100)]) == "8.000 → 2.000, 4.0 times lower"
    assert fall([]) == "was never reported"
