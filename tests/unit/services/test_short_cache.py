"""Answers that readers share: computed once, for a moment, and never an error."""

import threading
import time
from collections.abc import Sequence

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


def test_of_several_keys_only_the_old_ones_are_computed_at_once():
    clock, asked = Clock(), list[list[str]]()
    cache = ShortCache(clock)

    def compute(keys: Sequence[str]) -> dict[str, str]:
        asked.append(list(keys))
        return {key: key.upper() for key in keys if key != "none"}

    cache.get("b", 1.0, lambda: "kept")
    found = cache.get_all(["b", "a", "none", "a"], 1.0, compute)
    again = cache.get_all(["a", "none"], 1.0, compute)
    clock.now += 1.0
    cache.get_all(["a", "b"], 1.0, compute)

    assert found == {"a": "A", "b": "kept", "none": None}
    assert again == {"a": "A", "none": None}
    assert asked == [["a", "none"], ["a", "b"]]
    assert cache.get_all([], 1.0, compute) == {}


def test_readers_of_several_keys_in_other_orders_do_not_wait_for_each_other_in_turn():
    cache, answers = ShortCache(), list[object]()

    def compute(keys: Sequence[int]) -> dict[int, int]:
        time.sleep(0.001)
        return {key: key for key in keys}

    def read(step: int) -> None:
        for _ in range(20):
            answers.append(cache.get_all(list(range(12))[::step], 0.0, compute))

    threads = [threading.Thread(target=read, args=(step,), name=f"reader-{step}") for step in (1, -1, 2, -3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(answers) == 80


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
