"""Answers for which several threads wait: their order, errors, stops, and what is left behind."""

import contextlib
import threading
from collections.abc import Callable
from functools import partial

import pytest

from workers.trainers.asking_in_order import in_order
from workers.trainers.inference.engine.interface import Interrupted, never


def test_answers_come_in_the_order_of_the_work_each_as_soon_as_it_can() -> None:
    first, second = threading.Event(), threading.Event()
    work: list[Callable[[], object]] = [partial(first.wait, 30), partial(second.wait, 30), first.set]

    found = in_order(work, never, at_once=3)

    assert next(found) is True
    second.set()
    assert list(found) == [True, None]


def test_no_more_are_called_at_a_time_than_may() -> None:
    together = threading.Semaphore(2)

    def one(number: int) -> int:
        assert together.acquire(blocking=False)
        together.release()
        return number

    assert list(in_order([partial(one, number) for number in range(50)], never, at_once=2)) == [*range(50)]


def test_an_error_is_raised_before_answers_that_are_still_awaited() -> None:
    over = threading.Event()

    def fails() -> bool:
        raise ValueError("no")

    work: list[Callable[[], bool]] = [partial(over.wait, 30), fails]

    with pytest.raises(ValueError, match="no"):
        list(in_order(work, never, at_once=2))

    assert not over.is_set()
    over.set()


def test_a_stop_waits_for_no_answer_and_nothing_more_is_called() -> None:
    begun, over, called = threading.Event(), threading.Event(), list[str]()

    def waits() -> None:
        begun.set()
        over.wait(30)

    work: list[Callable[[], None]] = [waits, lambda: called.append("second")]

    with pytest.raises(Interrupted):
        list(in_order(work, begun.is_set, at_once=1))

    threads = [each for each in threading.enumerate() if each.name == "asking"]
    assert (len(threads), all(each.daemon for each in threads)) == (1, True)
    over.set()
    threads[0].join(10)
    assert called == []


def test_closing_ends_the_rest() -> None:
    is_closed, called = threading.Event(), list[int]()
    work: list[Callable[[], object]] = [lambda: 1, partial(is_closed.wait, 30), lambda: called.append(3)]

    with contextlib.closing(in_order(work, never, at_once=1)) as found:
        assert next(found) == 1

    is_closed.set()
    for each in threading.enumerate():
        if each.name == "asking":
            each.join(10)
    assert called == []


def test_without_work_there_are_no_answers() -> None:
    assert list(in_order([], never)) == []
