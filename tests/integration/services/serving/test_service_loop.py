"""The coordinator's thread that advances services."""

import time
from collections.abc import Iterator

import pytest

from app.http.context import EXTENSION
from app.services.requests.wakeups import Dispatcher
from tasks.background.serving import ServiceLoop
from tasks.celery_app import Runtime
from tests.builders.leading import Leading
from tests.builders.service_runs import ServiceRun
from tests.systems.apps import Api


@pytest.fixture
def leading() -> Leading:
    return Leading()


@pytest.fixture
def loop(sqlite_api: Api, leading: Leading) -> Iterator[ServiceLoop]:
    settings = sqlite_api.app.extensions[EXTENSION].settings
    dispatcher = Dispatcher(settings)
    made = ServiceLoop(Runtime(settings, sqlite_api.db, dispatcher), leading, poll_seconds=0.05)
    made.start()
    yield made
    made.stop()
    made.join()
    dispatcher.close()


def test_only_the_leader_starts_replicas_and_it_reads_what_gateways_count_by_itself(
    sqlite_api: Api, loop: ServiceLoop, leading: Leading
) -> None:
    run = ServiceRun(sqlite_api, replicas={"max": 2})
    run.load(waiting=1, requests=1)
    time.sleep(0.3)
    assert run.states() == []
    leading.leads = True
    loop.wake()
    until = time.monotonic() + 10
    while not run.states() and time.monotonic() < until:
        time.sleep(0.02)
    assert run.states() == ["PENDING"]
    other = ServiceRun(sqlite_api, name="other")
    other.load(waiting=1, requests=1)
    while not other.states() and time.monotonic() < until:
        time.sleep(0.02)
    assert other.states() == ["PENDING"]
