"""How long the copy of a log may hold back the end of an attempt."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.protocol.commands import DRAIN
from workers.supervisor import publish_logs
from workers.supervisor.publish_logs import Hurry
from workers.supervisor.ranks.event_loop import EventLoop


@pytest.fixture
def ended():
    """An attempt that has ended, with limits of parts of a second."""
    loop = EventLoop()
    yield SimpleNamespace(
        loop=loop, is_lost=lambda: False, machine_stops=lambda: False, observations=SimpleNamespace(stopping=None)
    )
    loop.close()


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for name, seconds in (("MOST", 0.9), ("HURRIED", 0.5), ("LEAVING", 0.1)):
        monkeypatch.setattr(publish_logs, f"{name}_SECONDS", seconds)


def allowed(attempt: Any) -> float:
    """How long the copy was allowed to take, after that time."""
    began, hurry = time.monotonic(), Hurry(attempt)
    attempt.loop.run_until(hurry.is_over)
    assert time.monotonic() - began >= hurry.seconds
    return hurry.seconds


@pytest.mark.parametrize(
    ("stopping", "seconds"), [(None, 0.9), ("cancel", 0.5), ("preempt", 0.5), ("requeue", 0.1), (DRAIN, 0.1)]
)
def test_copy_ends_in_time(ended, stopping, seconds):
    ended.observations.stopping = stopping

    assert allowed(ended) == seconds


def test_request_that_comes_meanwhile_shortens_it(ended):
    ended.loop.call_after(0.1, lambda: setattr(ended.observations, "stopping", "requeue"))

    assert allowed(ended) == 0.1


def test_machine_that_goes_down_does_not_wait(ended):
    ended.machine_stops = lambda: True

    assert allowed(ended) == 0.1
