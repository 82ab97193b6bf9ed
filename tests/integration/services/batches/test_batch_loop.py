"""The coordinator's thread that advances batches."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from app.http.context import EXTENSION
from app.services.requests.wakeups import Dispatcher
from tasks.background.batching import BatchLoop
from tasks.celery_app import Runtime
from tests.builders.batch_runs import BatchRun, answer, request
from tests.builders.leading import Leading
from tests.systems.apps import Api


@pytest.fixture
def leading() -> Leading:
    return Leading()


@pytest.fixture
def submitted() -> threading.Event:
    """Set when the loop has submitted jobs."""
    return threading.Event()


@pytest.fixture
def loop(sqlite_api: Api, leading: Leading, submitted: threading.Event) -> Iterator[BatchLoop]:
    settings = sqlite_api.app.extensions[EXTENSION].settings
    dispatcher = Dispatcher(settings)
    runtime = Runtime(settings, sqlite_api.db, dispatcher, on_submitted=lambda _jobs: submitted.set())
    made = BatchLoop(runtime, leading, poll_seconds=0.05)
    made.start()
    yield made
    made.stop()
    made.join()
    dispatcher.close()


def until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 20
    while not condition() and time.monotonic() < ends_at:
        time.sleep(0.02)
    assert condition()


@pytest.mark.long
def test_only_the_leader_advances_batches_from_the_file_to_the_answers(
    sqlite_api: Api, loop: BatchLoop, leading: Leading, submitted: threading.Event
) -> None:
    run = BatchRun(sqlite_api, [request("a")])
    bad = BatchRun(sqlite_api, [request("a", temperature=9)])
    time.sleep(0.3)
    assert run.status == "validating"

    leading.leads = True
    loop.wake()
    until(lambda: bool(run.jobs()))
    assert submitted.wait(20), "the leader admits them itself"
    until(lambda: bad.status == "failed")
    assert [(each["param"], each["line"]) for each in bad.batch().problems] == [("body.temperature", 1)]
    run.store([answer("a")])
    until(lambda: run.batch().completed == 1)
    run.end()
    loop.wake()
    until(lambda: run.status == "completed")
    assert [line["custom_id"] for line in run.answers()] == ["a"]
