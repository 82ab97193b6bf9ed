"""Processes started alone: what they refuse at once, and what they do without."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli.main import main
from tests.systems.celery_processes import CeleryWorld
from tests.systems.running_up import trainyard
from tests.systems.servers import free_port
from tests.systems.system import wait_for


@pytest.fixture
def world(tmp_path: Path, sqlite_url: str) -> Iterator[CeleryWorld]:
    """Its broker is away."""
    world = CeleryWorld(
        tmp_path,
        database_url=sqlite_url,
        broker_url=f"redis://127.0.0.1:{free_port()}/0",
        TRAINYARD_API_PORT=str(free_port()),
    )
    yield world
    world.close()


@pytest.mark.parametrize("arguments", [["api"], ["coordinator"], ["node", "--name", "box"]])
def test_a_missing_broker_is_reported_with_a_remedy(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path))

    answer = CliRunner().invoke(main, arguments)

    assert answer.exit_code == 1
    assert answer.stderr.startswith("Error: no broker: set TRAINYARD_BROKER_URL, or start `trainyard up`")
    assert not list(tmp_path.iterdir())


def test_a_node_name_that_cannot_work_is_a_mistake_of_usage() -> None:
    answer = CliRunner().invoke(main, ["node", "--name", "rack:7"])

    assert answer.exit_code == 2
    assert "letters, digits" in answer.stderr


@pytest.mark.long
def test_the_api_answers_while_the_broker_is_away(world: CeleryWorld) -> None:
    world.start_command(trainyard("api"))

    wait_for(lambda: status(world, "/health") == 200, seconds=20, what="the API answers")

    assert status(world, "/health/ready") == 503


@pytest.mark.parametrize("arguments", [[], ["--coordinator", "--node", "box"]])
def test_health_asks_about_one_process(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["health", *arguments]).exit_code == 2


def status(world: CeleryWorld, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{world.settings.api.port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:  # the server is not listening yet, or is still starting
        return 0
