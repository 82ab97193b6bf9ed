"""The very commands and health checks of docker-compose.yml, run here on our own ports."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.local.embedded_redis import is_free
from app.services.operations.bootstrap import prepare
from tests.systems.celery_processes import ROOT, CeleryWorld
from tests.systems.servers import free_port
from tests.systems.system import wait_for

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PROGRAMS = Path(sys.executable).parent
API_PORT, GATEWAY_PORT, FLOWER_PORT, BOARDS_PORT = "8000", "8001", "5555", "5556"


@pytest.fixture
def world(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[CeleryWorld]:
    world = CeleryWorld(
        tmp_path,
        database_url=sqlite_url,
        broker_url=redis_url,
        TRAINYARD_API_PORT=str(free_port()),
        TRAINYARD_FLOWER_PORT=str(free_port()),
        TRAINYARD_GATEWAY_PORT=str(free_port()),
        TRAINYARD_FLOWER_PASSWORD="hush",
        TRAINYARD_NODE_SANDBOX="process",
        TRAINYARD_TENSORBOARD_PORT=str(free_port()),
    )
    prepare(world.settings)
    yield world
    world.close()


def port_of(world: CeleryWorld, name: str) -> int:
    settings = world.settings
    ports = {"api": settings.api.port, "gateway": settings.gateway.port, "flower": settings.flower.port}
    return {**ports, "tensorboard": settings.tensorboard.port}[name]


def command(world: CeleryWorld, words: list[str]) -> list[str]:
    settings = world.settings
    ports = {
        API_PORT: settings.api.port,
        GATEWAY_PORT: settings.gateway.port,
        FLOWER_PORT: settings.flower.port,
        BOARDS_PORT: settings.tensorboard.port,
    }
    for inside, here in ports.items():
        words = [word.replace(f":{inside}/", f":{here}/") for word in words]
    return [str(PROGRAMS / words[0]), *words[1:]]


def start(world: CeleryWorld, name: str) -> "subprocess.Popen[bytes]":
    return world.start_command(command(world, SERVICES[name]["command"]))


def check(world: CeleryWorld, name: str) -> "subprocess.Popen[bytes]":
    kind, *words = SERVICES[name]["healthcheck"]["test"]
    assert kind == "CMD"
    environment = {**os.environ, **world.environment, "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(command(world, words), env=environment, stderr=subprocess.PIPE)


def is_healthy(world: CeleryWorld, name: str) -> bool:
    with check(world, name) as process:
        return process.wait(20) == 0


@pytest.mark.long
def test_workers_are_healthy_while_they_live_and_not_when_they_are_killed(world: CeleryWorld) -> None:
    processes = [start(world, name) for name in ("coordinator", "node-cpu")]

    for name in ("coordinator", "node-cpu"):
        wait_for(lambda name=name: is_healthy(world, name), seconds=30, what=f"{name} is healthy")  # type: ignore[misc]

    for process in processes:
        process.kill()
        process.wait()
    with check(world, "coordinator") as one, check(world, "node-cpu") as other:
        said = [process.communicate()[1].decode() for process in (one, other)]
    assert (one.returncode, other.returncode) == (1, 1)
    assert "no heartbeat from coordinator of" in said[0]
    assert "no heartbeat from node cpu-1" in said[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["api", "gateway", "flower", "tensorboard"])
def test_what_listens_is_healthy_once_it_does(world: CeleryWorld, name: str) -> None:
    assert not is_healthy(world, name)

    start(world, name)

    # Each check is a process: it is asked only now.
    wait_for(lambda: not is_free("127.0.0.1", port_of(world, name)), seconds=30, what=f"{name} listens")
    wait_for(lambda: is_healthy(world, name), seconds=30, what=f"{name} is healthy")
