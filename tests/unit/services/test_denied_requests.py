"""A flood of denied attempts fills a few lines, and none of them is forgotten."""

import pytest

from app.services.access import denied_requests
from app.services.access.denied_requests import MAX_PER_SOURCE, MAX_TOTAL, WINDOW_SECONDS, DenialThrottle


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def written(gate: DenialThrottle, source: str, tries: int) -> list[int]:
    """What each line that was written says of those left out before it."""
    said = [gate.admit(source) for _ in range(tries)]
    return [left_out for left_out in said if left_out is not None]


def test_a_few_attempts_are_written_one_by_one() -> None:
    assert written(DenialThrottle(Clock()), "10.0.0.1", MAX_PER_SOURCE) == [0] * MAX_PER_SOURCE


def test_flood_is_recorded_at_powers_of_ten_with_the_number_left_out() -> None:
    lines = written(DenialThrottle(Clock()), "10.0.0.1", 10_000)

    assert lines == [0] * MAX_PER_SOURCE + [89, 899, 8999]
    assert len(lines) + sum(lines) == 10_000


def test_next_minute_starts_over_and_reports_the_last_one() -> None:
    clock = Clock()
    gate = DenialThrottle(clock)
    written(gate, "10.0.0.1", 60)
    clock.now += WINDOW_SECONDS

    assert written(gate, "10.0.0.1", 2) == [50, 0]


def test_many_sources_fill_no_more_than_their_share() -> None:
    gate = DenialThrottle(Clock())

    lines = [gate.admit(f"10.0.{number // 250}.{number % 250}") for number in range(1000)]

    assert len([left_out for left_out in lines if left_out is not None]) == MAX_TOTAL


def test_sources_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denied_requests, "MAX_SOURCES", 3)
    gate = DenialThrottle(Clock())

    assert [gate.admit(f"10.0.0.{number}") for number in range(20)] == [0] * 20
    assert len(gate._windows) == 3
