"""How long the end of an attempt waits for a client, and what is said of one that dies."""

import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from app.database.engine import Database
from config.settings import load_settings
from tests.systems.system import wait_for
from tests.unit.workers.tracking.test_run_facts import KEY, work
from workers.tracking import relay, trackers
from workers.tracking.child import TrackingChild
from workers.tracking.failures import ProcessEnded
from workers.tracking.relay import TrackingRelay, TrackingService
from workers.tracking.trackers import Trackers

END_SECONDS = 1.0
SETTINGS = load_settings({"TRAINYARD_SECURITY_SECRET_KEY": KEY, "TRAINYARD_TRACKING_END_SECONDS": str(END_SECONDS)})


def silent(_: Mapping[str, Any]) -> TrackingChild:
    """A client that never answers."""
    return TrackingChild(subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE), ExitStack())


@pytest.mark.parametrize(
    ("outcome", "waits"), [("paused", False), ("preempted", False), ("requeued", False), ("cancelled", True)]
)
def test_ends_that_another_attempt_follows_do_not_wait_for_a_client(
    database: Database, monkeypatch: pytest.MonkeyPatch, outcome: str, *, waits: bool
) -> None:
    monkeypatch.setattr(trackers, "SHORT_SECONDS", 0.1)
    ours = work(("tracking", [{"kind": "wandb", "token": "k" * 40}]))
    tracking = Trackers(SETTINGS, database, ours, lambda message, data: None, silent)
    tracking.start()
    began = time.monotonic()

    tracking.finish(outcome)

    took = time.monotonic() - began
    tracking.close()
    assert (took >= END_SECONDS) == waits


def test_client_that_dies_again_and_again_is_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "FIRST_PAUSE_SECONDS", 0.05)
    starts = 0

    def start() -> TrackingChild:
        nonlocal starts
        starts += 1
        raise ProcessEnded

    service = TrackingService(
        what="tracking.0", first={}, timeout_seconds=1.0, flush_seconds=0.05, start=start, is_late=True
    )
    served = TrackingRelay(database, "job-1", service, lambda problem: None)
    served.start()
    wait_for(lambda: served.problem, seconds=10, what="the relay has a problem")
    served.close()

    assert served.problem == "the process that speaks to it has ended"
    assert starts >= 2
