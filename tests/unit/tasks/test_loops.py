"""Loops of the coordinator: continue after failures, wake early, end when stopped."""

import threading

from tasks.background.loop import Loop
from tests.systems.system import wait_for


class Work:
    def __init__(self) -> None:
        self.runs = 0
        self.failures = 0
        self.ran = threading.Event()

    def __call__(self) -> None:
        self.runs += 1
        self.ran.set()
        if self.failures:
            self.failures -= 1
            raise ValueError("database away")


def test_woken_loop_does_not_wait_for_its_time() -> None:
    work = Work()
    loop = Loop("test", work, every_seconds=60)
    loop.start()
    assert work.ran.wait(5)
    work.ran.clear()

    loop.wake()

    assert work.ran.wait(5)
    loop.stop()
    loop.join()


def test_failing_work_is_tried_again_soon() -> None:
    work = Work()
    work.failures = 2
    loop = Loop("test", work, every_seconds=60)

    loop.start()

    wait_for(lambda: work.runs == 3, seconds=5, what="the third try")
    loop.stop()
    loop.join()


def test_loop_works_at_least_as_often_as_configured() -> None:
    work = Work()
    loop = Loop("test", work, every_seconds=0.01)
    loop.start()

    wait_for(lambda: work.runs > 5, seconds=5, what="several runs")

    loop.stop()
    loop.join()


def test_loop_that_never_started_can_be_stopped() -> None:
    work = Work()
    loop = Loop("test", work, every_seconds=1)

    loop.stop()
    loop.join()

    assert work.runs == 0
