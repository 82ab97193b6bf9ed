"""What several request processes of one API server count together, and from where they begin."""

import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.systems.celery_processes import CeleryWorld
from tests.systems.running_up import trainyard
from tests.systems.servers import free_port
from tests.systems.system import wait_for


@pytest.fixture
def world(tmp_path: Path, sqlite_url: str) -> Iterator[CeleryWorld]:
    world = CeleryWorld(
        tmp_path,
        database_url=sqlite_url,
        broker_url=f"redis://127.0.0.1:{free_port()}/0",
        TRAINYARD_API_PORT=str(free_port()),
        TRAINYARD_API_WORKERS="2",
    )
    yield world
    world.close()


def get(world: CeleryWorld, path: str) -> str:
    """Over a connection of its own, so that any of the processes may answer."""
    key = world.settings.admin_key_file.read_text().strip()
    url = f"http://127.0.0.1:{world.settings.api.port}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def answers(world: CeleryWorld) -> bool:
    try:
        return "live" in get(world, "/health")
    except OSError:
        return False


def ask_until(world: CeleryWorld, path: str, reached: Callable[[], bool]) -> int:
    """How many requests it took; which process takes one is the kernel's choice."""
    sent = 0

    def ask() -> bool:
        nonlocal sent
        get(world, path)
        sent += 1
        return reached()

    wait_for(ask, seconds=30, what="every process has answered a request")
    return sent


def counted(world: CeleryWorld, route: str) -> float:
    return sum(
        sample.value
        for family in parse(get(world, "/metrics"))
        for sample in family.samples
        if sample.name == "trainyard_http_requests_total" and sample.labels["route"] == route
    )


@pytest.mark.long
def test_processes_count_together_and_each_start_from_zero(world: CeleryWorld) -> None:
    first = world.start_command(trainyard("api"))
    wait_for(lambda: answers(world), seconds=30, what="the API answers")

    directory = next((world.settings.data.dir / "run" / "measurements").iterdir())
    sent = ask_until(world, "/v1/queues", lambda: len(list(directory.glob("counter_*.db"))) == 2)

    assert {counted(world, "/v1/queues") for _ in range(10)} == {sent}
    assert directory.name.endswith(f"-{world.settings.api.port}")
    assert directory.stat().st_mode & 0o777 == 0o700

    first.terminate()
    first.wait(timeout=20)
    world.start_command(trainyard("api"), TRAINYARD_API_WORKERS="1")
    wait_for(lambda: answers(world), seconds=30, what="the API answers again")

    assert counted(world, "/v1/queues") == 0
