"""Answers that readers share: computed once, for a moment, and never an error."""

import threading
import time

import pytest

from app.services.requests import short_cache
from app.services.requests.short_cache import ShortCache


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_computed_again_when_it_is_too_old():
    clock, made = Clock(), list[int]()
    cache = ShortCache(clock)

    def compute() -> int:
        made.append(1)
        return len(made)

    values = [cache.get("a", 1.0, compute)]
    clock.now += 0.9
    values.append(cache.get("a", 1.0, compute))
    clock.now += 0.1
    values.append(cache.get("a", 1.0, compute))

    assert values == [1, 1, 2]
    assert cache.get("b", 1.0, compute) == 3


def test_an_error_is_not_kept():
    cache = ShortCache(Clock())

    def fail() -> int:
        raise LookupError

    with pytest.raises(LookupError):
        cache.get("a", 1.0, fail)

    assert cache.get("a", 1.0, lambda: 5) == 5


def test_of_readers_that_come_at_once_one_computes():
    cache, made, answers = ShortCache(), list[int](), list[int]()

    def compute() -> int:
        made.append(1)
        time.sleep(0.05)
        return 7

    threads = [
        threading.Thread(target=lambda: answers.append(cache.get("a", 60.0, compute)), name=f"reader-{i}")
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (answers, made) == ([7] * 8, [1])


def test_old_values_leave_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(short_cache, "MOST", 3)
    clock = Clock()
    cache = ShortCache(clock)
    for key in ("a", "b"):
        cache.get(key, 60.0, lambda: 1)
    clock.now += short_cache.OLD_SECONDS + 1
    cache.get("c", 60.0, lambda: 1)

    cache.get("d", 60.0, lambda: 1)

    assert cache.get("c", 60.0, lambda: 2) == 1
    assert cache.get("a", 1e9, lambda: 2) == 2
