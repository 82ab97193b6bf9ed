"""Flower as a process: shows jobs by name with their state, behind a password, and its revoke cancels the job."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from app.domain.lifecycle.states import JobState
from app.services.access.password_guesses import GUESSES
from app.services.lifecycle import transitions
from config.queues import flower_command
from tests.systems.celery_processes import CeleryWorld
from tests.systems.servers import free_port
from tests.systems.system import wait_for

PASSWORD = "not-in-any-command-line"


@pytest.fixture
def world(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[CeleryWorld]:
    world = CeleryWorld(
        tmp_path,
        database_url=sqlite_url,
        broker_url=redis_url,
        TRAINYARD_FLOWER_PORT=str(free_port()),
        TRAINYARD_FLOWER_PASSWORD=PASSWORD,
    )
    yield world
    world.close()


def call(world: CeleryWorld, method: str, path: str, password: str = PASSWORD) -> tuple[int, Any]:
    """Status and, where it is JSON, body; status 0 as long as no server listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{world.settings.flower.port}{path}", method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            body = response.read()
            return response.status, json.loads(body) if body.startswith(b"{") else body
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
    except urllib.error.URLError:
        return 0, None


def listeners(redis_url: str) -> int:
    """Number of subscribers to Celery's events; what was sent before the first one is lost."""
    with redis.Redis.from_url(redis_url) as client:
        return int(client.pubsub_numpat())


def in_state(world: CeleryWorld, job_id: str, state: str) -> dict[str, Any] | None:
    status, shown = call(world, "GET", f"/api/task/info/{job_id}")
    return shown if status == 200 and shown["state"] == state else None


@pytest.mark.long
def test_flower_shows_jobs_and_its_revoke_cancels_them(world: CeleryWorld) -> None:
    process = world.start_command(flower_command())
    wait_for(lambda: reachable(world), seconds=20, what="Flower answers")
    world.start()
    job_id = world.submit(name="first steps")

    shown = wait_for(lambda: in_state(world, job_id, "QUEUED"), seconds=20, what="shown")
    assert shown["name"] == "SFT:first steps"
    assert shown["received"]

    assert call(world, "POST", f"/api/task/revoke/{job_id}?terminate=true", "wrong")[0] == 401
    assert call(world, "GET", "/", "wrong")[0] == 401
    assert PASSWORD not in Path(f"/proc/{process.pid}/cmdline").read_text()

    assert call(world, "POST", f"/api/task/revoke/{job_id}?terminate=true")[0] == 200
    wait_for(lambda: world.is_in(job_id, JobState.CANCELLED), seconds=5, what="cancelled")
    wait_for(lambda: in_state(world, job_id, "CANCELLED"), seconds=5, what="shown as cancelled")

    # Last, since this address is then refused for some seconds.
    guesses = [call(world, "GET", "/", "wrong")[0] for _ in range(GUESSES.burst + 2)]
    assert (guesses[0], guesses[-1]) == (401, 429)
    assert call(world, "GET", "/")[0] == 429


@pytest.mark.long
def test_flower_started_later_sees_what_happens_from_then_on(world: CeleryWorld, redis_url: str) -> None:
    world.start()
    job_id = world.submit(name="older than Flower")
    wait_for(lambda: world.shown(job_id).state == "QUEUED", seconds=15, what="mirrored")
    others = listeners(redis_url)
    world.start_command(flower_command())
    wait_for(lambda: reachable(world), seconds=20, what="Flower answers")
    wait_for(lambda: listeners(redis_url) > others, seconds=20, what="Flower listens")

    with world.db.write() as session:
        job = transitions.load_for_change(session, job_id)
        transitions.transition(session, job, JobState.PAUSED, actor="test")

    shown = wait_for(lambda: in_state(world, job_id, "PAUSED"), seconds=10, what="shown")
    assert shown["name"] == "SFT:older than Flower"


def test_flower_without_a_password_does_not_start(world: CeleryWorld) -> None:
    process = world.start_command(flower_command(), TRAINYARD_FLOWER_PASSWORD="")

    assert process.wait(20) == 1
    assert "TRAINYARD_FLOWER_PASSWORD" in world.log


def reachable(world: CeleryWorld) -> bool:
    return call(world, "GET", "/healthcheck")[0] == 200
