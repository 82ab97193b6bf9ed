"""The fake dispatcher behaves like the real one for its callers."""

import inspect

import pytest

from app.services.requests.wakeups import Dispatcher, Message
from config.settings import load_settings
from tests.doubles.fakes import FakeDispatcher


def real() -> Dispatcher:
    def publish(_message: Message) -> None:
        raise ConnectionError("no broker")

    return Dispatcher(load_settings({"TRAINYARD_DATA_DIR": "/nowhere"}), connect=lambda _: publish)


@pytest.mark.parametrize("make", [FakeDispatcher, real])
def test_ringing_never_fails_and_returns_nothing(make):
    dispatcher = make()

    rung = [
        dispatcher.ring_admit("job-1", "default", 5),
        dispatcher.ring_run([("job-1", 1)], "n1", "cpu", 5),
        dispatcher.nudge("job-1", "n1"),
    ]
    dispatcher.close()

    assert rung == [None, None, None]


@pytest.mark.parametrize("method", ["ring_admit", "ring_run", "nudge", "close"])
def test_both_take_the_same_arguments(method: str):
    parameters = [list(inspect.signature(getattr(cls, method)).parameters) for cls in (FakeDispatcher, Dispatcher)]

    assert parameters[0] == parameters[1]
