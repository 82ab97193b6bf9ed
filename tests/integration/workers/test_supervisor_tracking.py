"""A real supervisor sends a job's metrics to a tracking server, and waits for none that is away."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.host import processes
from app.models import JobEvent
from app.security.secrets import SecretBox
from app.services.attempts import artifacts
from tests.builders.wandb_reading import Fields, fields_of, read_records, values_of
from tests.doubles.mlflow import FakeMlflow, running_mlflow
from tests.systems.servers import free_port
from tests.systems.supervising import World, training, try_again

HISTORY, RUN, EXIT = 2, 17, 18
TOKEN = "t0ken-of-the-tracking-server"


@pytest.fixture
def server() -> Iterator[FakeMlflow]:
    with running_mlflow() as server:
        yield server


@pytest.fixture
def near(make_world: Callable[..., World]) -> World:
    """Its operator allows tracking servers on the machine."""
    return make_world(
        TRAINYARD_TRACKING_ALLOW="127.0.0.1",
        TRAINYARD_TRACKING_FLUSH_SECONDS="0.2",
        TRAINYARD_TRACKING_TIMEOUT_SECONDS="5",
        TRAINYARD_SECURITY_SECRET_KEY="k" * 43 + "=",
    )


def start(world: World, url: str, script: str, *, token: str = TOKEN, **more: Any) -> str:
    secrets = {"tracking.0.token": token} if token else {}
    tracker = {"kind": "mlflow", "url": url, "experiment": "e", **({"token": "***"} if token else {})}
    return world.start(
        script,
        document={"tracking": [tracker], **more},
        sealed_secrets=SecretBox(world.settings.security.secret_key).seal(secrets) if secrets else "",
    )


def steps(server: FakeMlflow, job_id: str) -> list[int]:
    return sorted(point["step"] for point in server.run_of(job_id).history if point["key"] == "loss")


def wait_for_status(world: World, server: FakeMlflow, job_id: str, status: str) -> None:
    """It is written after the job's end."""
    world.wait(lambda: server.run_of(job_id).info["status"] == status, 10, job_id)


def warnings(world: World, job_id: str) -> list[JobEvent]:
    return [event for event in world.events(job_id) if event.type == EventType.WARNING]


def tracking_process(world: World, job_id: str) -> int:
    """The child of the job's supervisor that speaks to the server."""
    supervisor = world.lease(job_id).supervisor_pid
    assert supervisor is not None
    (found,) = [pid for pid in processes.descendants(supervisor) if b"workers.tracking" in command_line(pid)]
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.long
def test_job_is_one_run_over_its_attempts(near: World, server: FakeMlflow) -> None:
    server.authorization = f"Bearer {TOKEN}"
    labels = {"trainyard/sweep": "sweep-1", "trainyard/trial": "7"}
    job_id = start(near, server.url, training(steps=6, save_at=(3,), fail_at_end=True), labels=labels)
    assert near.wait_for_end(job_id).state is JobState.FAILED, near.describe(job_id)
    run = server.run_of(job_id)
    wait_for_status(near, server, job_id, "FAILED")
    assert steps(server, job_id) == [1, 2, 3, 4, 5, 6]

    job = try_again(near, job_id)

    assert job.state is JobState.COMPLETED, near.describe(job_id)
    wait_for_status(near, server, job_id, "FINISHED")
    assert steps(server, job_id) == [1, 2, 3, 4, 4, 5, 5, 6, 6]
    assert run.tags["trainyard.repeated_in_attempt_2"] == "steps 4 to 6"
    assert (run.tags["trainyard.sweep_id"], run.tags["trainyard.trial"]) == ("sweep-1", "7")
    assert run.params["speed"] == "fast"
    assert warnings(near, job_id) == []
    assert TOKEN not in near.describe(job_id)


def test_server_that_is_away_delays_nobody_and_is_named(near: World) -> None:
    job_id = start(near, f"http://127.0.0.1:{free_port()}", training(steps=3))

    job = near.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, near.describe(job_id)
    (warning,) = warnings(near, job_id)
    assert warning.message.startswith("tracking.0 (mlflow at 127.0.0.1): 3 metric points were not delivered: it cannot")
    assert (warning.reason, (warning.data or {})["points"]) == ("TRACKING", 3)


@pytest.mark.long
def test_server_that_never_answers_costs_a_bounded_time(near: World) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        job_id = start(near, url, training(steps=1))
        job = near.wait_for_end(job_id, 30)

    assert job.state is JobState.COMPLETED, near.describe(job_id)
    assert time.monotonic() - began < 25
    (warning,) = warnings(near, job_id)
    assert "1 metric point was not delivered: it does not answer in time" in warning.message


@pytest.mark.long
def test_what_was_missed_is_delivered_by_the_next_attempt(near: World) -> None:
    port = free_port()
    job_id = start(near, f"http://127.0.0.1:{port}", training(steps=6, save_at=(3,), fail_at_end=True))
    assert near.wait_for_end(job_id).state is JobState.FAILED, near.describe(job_id)

    with running_mlflow(port) as server:
        assert try_again(near, job_id).state is JobState.COMPLETED, near.describe(job_id)

        assert set(steps(server, job_id)) == {1, 2, 3, 4, 5, 6}
        wait_for_status(near, server, job_id, "FINISHED")


def test_refused_token_is_reported_once_and_early(near: World, server: FakeMlflow) -> None:
    server.authorization = "Bearer another"
    job_id = start(near, server.url, training(steps=60))
    near.wait(lambda: bool(warnings(near, job_id)), 10, job_id)
    assert near.job(job_id).state not in (JobState.COMPLETED, JobState.FAILED)
    near.request(job_id, "cancel")

    assert near.wait_for_end(job_id).state is JobState.CANCELLED

    first, *rest = warnings(near, job_id)
    assert first.message == "tracking.0 (mlflow at 127.0.0.1): it answers 401"
    assert all("not delivered" in warning.message for warning in rest)
    assert not server.runs


@pytest.mark.long
def test_cancelled_job_is_a_killed_run(near: World, server: FakeMlflow) -> None:
    job_id = start(near, server.url, training(steps=500))
    near.wait(lambda: bool(server.runs) and bool(steps(server, job_id)), 15, job_id)
    child = tracking_process(near, job_id)
    assert TOKEN.encode() not in command_line(child)
    near.request(job_id, "cancel")

    assert near.wait_for_end(job_id).state is JobState.CANCELLED
    wait_for_status(near, server, job_id, "KILLED")
    near.wait(lambda: b"workers.tracking" not in command_line(child), 10, job_id)


def test_private_address_is_not_reached_unless_the_operator_allows_it(
    make_world: Callable[..., World], server: FakeMlflow
) -> None:
    world = make_world()
    job_id = start(world, server.url, training(steps=2), token="")

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    (warning,) = warnings(world, job_id)
    assert "loopback, link-local or private address" in warning.message
    assert "TRAINYARD_TRACKING_ALLOW" in warning.message
    assert server.seen == []


@pytest.mark.long  # two attempts
def test_offline_run_is_an_artifact_over_all_attempts(make_world: Callable[..., World]) -> None:
    world = make_world()
    offline = {"kind": "wandb", "mode": "offline", "experiment": "support", "run_name": "first", "tags": ["a"]}
    job_id = world.start(training(steps=4, save_at=(2,), fail_at_end=True), document={"tracking": [offline]})
    assert world.wait_for_end(job_id).state is JobState.FAILED, world.describe(job_id)
    failed = records_of(world, job_id)
    assert [fields_of(each[EXIT][0])[1] for each in failed if EXIT in each] == [[1]]

    assert try_again(world, job_id).state is JobState.COMPLETED, world.describe(job_id)

    records = records_of(world, job_id)
    run = fields_of(next(each[RUN][0] for each in records if RUN in each))
    assert (run[1], run[3], run[8], run[10]) == ([job_id.encode()], [b"support"], [b"first"], [b"a"])
    steps = [values_of(each[HISTORY][0]) for each in records if HISTORY in each]
    assert [(each["_step"], each["loss"]) for each in steps if "loss" in each] == [(n, 1 / n) for n in range(1, 5)]
    assert 1 not in fields_of(next(each[EXIT][0] for each in records if EXIT in each))  # exit code 0
    assert warnings(world, job_id) == []


def records_of(world: World, job_id: str) -> list[Fields]:
    """Of the artifact, whose size and hash are recorded."""
    with world.db.read() as session:
        (file,) = artifacts.listed(session, job_id, artifacts.WANDB)
    with artifacts.opened(world.storage, file) as stream:
        data = stream.read()
    assert (file.size_bytes, file.sha256) == (len(data), sha256(data).hexdigest())
    assert file.path == f"wandb/offline-run-{job_id}/run-{job_id}.wandb"
    return list(read_records(data))
