"""Rows of W&B's history: one for each step, unless its points arrived apart, and none that breaks the run's order."""

import math

from workers.tracking.wandb_rows import rows


def test_points_of_a_step_are_one_row_with_the_number_of_the_last() -> None:
    points = [["loss", 1, 1500, 0.5, 7], ["lr", 1, 1600, 1e-4, 8], ["loss", 2, 2000, 0.25, 9]]

    assert list(rows(points)) == [
        (8, {"loss": 0.5, "lr": 1e-4, "step": 1, "_timestamp": 1.6}),
        (9, {"loss": 0.25, "step": 2, "_timestamp": 2.0}),
    ]


def test_value_that_comes_again_for_its_step_is_a_row_of_its_own() -> None:
    points = [["loss", 4, 1000, 0.5, 1], ["loss", 4, 2000, 0.4, 2], ["loss", 3, 3000, 0.6, 3]]

    assert [(number, row["step"], row["loss"]) for number, row in rows(points)] == [
        (1, 4, 0.5),
        (2, 4, 0.4),
        (3, 3, 0.6),
    ]


def test_names_that_the_client_keeps_for_itself_do_not_change_where_the_run_is_continued() -> None:
    points = [["_step", 1, 1000, 9e9, 1], ["step", 1, 1000, 8.0, 2], ["_timestamp", 1, 1000, 0.0, 3]]

    ((number, row),) = rows(points)

    assert (number, row["step"], row["_timestamp"]) == (3, 1, 1.0)
    assert (row["metric/_step"], row["metric/step"], row["metric/_timestamp"]) == (9e9, 8.0, 0.0)
    assert "_step" not in row


def test_values_that_are_no_finite_numbers_are_kept() -> None:
    ((_, row),) = rows([["loss", 1, 1000, "NaN", 1], ["norm", 1, 1000, "-Infinity", 2]])

    assert math.isnan(row["loss"])
    assert row["norm"] == -math.inf
