"""Readers without a stream are counted for a minute, each once."""

import pytest

from app.http import polls
from app.http.polls import SECONDS, RecentPolls


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_counts_once_until_it_has_not_polled_for_a_minute() -> None:
    clock = Clock()
    recent = RecentPolls(clock)
    recent.note("a")
    clock.now += SECONDS / 2
    recent.note("b")
    recent.note("a")
    assert recent.count() == 2

    clock.now += SECONDS - 1
    recent.note("b")
    assert recent.count() == 2
    clock.now += 2
    assert recent.count() == 1


def test_those_beyond_the_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "MOST", 2)
    recent = RecentPolls(Clock())

    for who in "abca":
        recent.note(who)

    assert recent.count() == 2
