"""The priority of a batch's jobs rises while its window runs out."""

import pytest

from app.domain.batches.deadline import priority


@pytest.mark.parametrize(
    ("first", "current", "passed", "wanted"),
    [(5, 5, 0.0, 5), (5, 5, 0.5, 6), (5, 6, 0.8, 7), (5, 5, 2.0, 8), (5, 9, 0.9, 9), (9, 9, 1.0, 10), (5, 7, 0.1, 7)],
)
def test_it_rises_and_never_falls(first: int, current: int, passed: float, wanted: int) -> None:
    assert priority(first, current, passed) == wanted
