"""A real supervisor has W&B's own client send a job's metrics, from a sandbox that connects to W&B's server alone."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.host import processes
from app.models import JobEvent
from app.security.secrets import SecretBox
from app.storage.object_keys import run_file_key, wandb_file
from tests.doubles.wandb import HOST, FakeWandb, login, running_wandb
from tests.systems.servers import free_port
from tests.systems.supervising import World, training, try_again

pytestmark = pytest.mark.long  # W&B's client takes a second or two to start

KEY = "0123456789abcdef0123456789abcdef01234567"
UNCERTAIN = re.compile(r": [1-9]\d* metric points? (was|were) not certainly delivered: ")
LABELS = {"trainyard/sweep": "sweep-1", "team": "support"}


@pytest.fixture
def server() -> Iterator[FakeWandb]:
    with running_wandb() as server:
        server.key = KEY
        yield server


@pytest.fixture
def near(make_world: Callable[..., World]) -> World:
    """Its operator allows tracking servers on the machine."""
    return make_world(
        TRAINYARD_TRACKING_ALLOW=HOST,
        TRAINYARD_TRACKING_FLUSH_SECONDS="0.2",
        TRAINYARD_TRACKING_TIMEOUT_SECONDS="5",
        TRAINYARD_SECURITY_SECRET_KEY="k" * 43 + "=",
    )


def start(world: World, url: str, script: str, *, key: str = KEY) -> str:
    tracker = {"kind": "wandb", "url": url, "experiment": "support", "token": "***"}
    return world.start(
        script,
        document={"tracking": [tracker], "labels": LABELS},
        sealed_secrets=SecretBox(world.settings.security.secret_key).seal({"tracking.0.token": key}),
    )


def losses(server: FakeWandb, job_id: str) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in server.runs[job_id].history if "loss" in row]


def warnings(world: World, job_id: str) -> list[JobEvent]:
    return [event for event in world.events(job_id) if event.type == EventType.WARNING]


def test_job_is_one_run_over_its_attempts(near: World, server: FakeWandb) -> None:
    job_id = start(near, server.url, training(steps=6, save_at=(3,), fail_at_end=True))
    assert near.wait_for_end(job_id, 60).state is JobState.FAILED, near.describe(job_id)
    assert losses(server, job_id) == [(step, 1 / step) for step in range(1, 7)]
    assert server.runs[job_id].ends == [1]

    job = try_again(near, job_id, seconds=60)

    assert job.state is JobState.COMPLETED, near.describe(job_id)
    run = server.runs[job_id]
    assert losses(server, job_id) == [(step, 1 / step) for step in (1, 2, 3, 4, 5, 6, 4, 5, 6)]
    assert run.ends == [1, 0]
    assert (run.summary["step"], run.summary["loss"]) == (6, 1 / 6)
    own_steps = [row["_step"] for row in run.history]
    assert own_steps == sorted(set(own_steps))
    assert run.project == "support"
    assert (run.described["groupName"], "team=support" in run.described["tags"]) == ("sweep-1", True)
    assert run.config["speed"]["value"] == "fast"
    assert warnings(near, job_id) == []
    assert KEY not in near.describe(job_id)


def test_what_was_missed_is_delivered_by_the_next_attempt(near: World) -> None:
    port = free_port()
    job_id = start(near, f"http://{HOST}:{port}", training(steps=6, save_at=(3,), fail_at_end=True))
    assert near.wait_for_end(job_id, 60).state is JobState.FAILED, near.describe(job_id)
    (warning,) = warnings(near, job_id)
    assert warning.message.startswith(f"tracking.0 (wandb at {HOST}): ")
    assert UNCERTAIN.search(warning.message)

    with running_wandb(port) as server:
        assert try_again(near, job_id, seconds=60).state is JobState.COMPLETED, near.describe(job_id)

        assert {step for step, _ in losses(server, job_id)} == {1, 2, 3, 4, 5, 6}
        assert server.runs[job_id].ends == [0]


def test_refused_key_is_reported_early(near: World, server: FakeWandb) -> None:
    job_id = start(near, server.url, training(steps=5000), key="f" * 40)
    near.wait(lambda: bool(warnings(near, job_id)), 30, job_id)
    assert near.job(job_id).state not in (JobState.COMPLETED, JobState.FAILED)
    near.request(job_id, "cancel")

    assert near.wait_for_end(job_id, 60).state is JobState.CANCELLED
    first = warnings(near, job_id)[0].message
    assert "returned error 401" in first
    said = near.describe(job_id) + "".join(warning.message for warning in warnings(near, job_id))
    assert "Authorization: Basic ***" in first
    assert "f" * 40 not in said
    assert login("f" * 40).rstrip("=") not in said
    assert not server.runs


def test_points_that_the_server_refuses_are_named_at_the_end(near: World, server: FakeWandb) -> None:
    server.forgets = True

    job_id = start(near, server.url, training(steps=3))

    assert near.wait_for_end(job_id, 60).state is JobState.COMPLETED, near.describe(job_id)
    (warning,) = warnings(near, job_id)
    assert UNCERTAIN.search(warning.message)
    assert "the server does not have all points" in warning.message


def test_cancelled_job_leaves_no_process(near: World, server: FakeWandb) -> None:
    job_id = start(near, server.url, training(steps=5000))
    near.wait(lambda: job_id in server.runs, 30, job_id)
    supervisor = near.lease(job_id).supervisor_pid
    assert supervisor is not None
    ours = list(processes.descendants(supervisor))
    near.request(job_id, "cancel")

    assert near.wait_for_end(job_id, 60).state is JobState.CANCELLED
    assert server.runs[job_id].ends == [1]
    near.wait(lambda: not any(processes.state_of(pid) for pid in ours), 20, job_id)
    assert list((near.data_dir / "run" / "preflight").iterdir()) == []


def test_server_that_never_answers_costs_a_bounded_time(near: World) -> None:
    with closing(socket.create_server((HOST, 0))) as listener:
        began = time.monotonic()
        job_id = start(near, f"http://{HOST}:{listener.getsockname()[1]}", training(steps=1))
        job = near.wait_for_end(job_id, 60)

    assert job.state is JobState.COMPLETED, near.describe(job_id)
    assert time.monotonic() - began < 35
    (warning,) = warnings(near, job_id)
    assert UNCERTAIN.search(warning.message)


def test_wandb_sync_uploads_the_offline_run(near: World, server: FakeWandb, tmp_path: Path) -> None:
    offline = {"kind": "wandb", "mode": "offline", "experiment": "support", "run_name": "first", "tags": ["a"]}
    job_id = near.start(training(steps=3), document={"tracking": [offline]})
    assert near.wait_for_end(job_id, 60).state is JobState.COMPLETED, near.describe(job_id)
    assert server.seen == []
    path = wandb_file(job_id)
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes(near.storage.read(run_file_key(job_id, path)))

    subprocess.run(
        [Path(sys.executable).with_name("wandb"), "sync", (tmp_path / path).parent],
        cwd=tmp_path,  # it writes a log beside
        env={"HOME": str(tmp_path), "WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "PATH": os.environ["PATH"]},
        check=True,
        timeout=60,
    )

    run = server.runs[job_id]
    sent = [(row["_step"], row["loss"]) for row in run.history if "loss" in row]
    assert sent == [(step, 1 / step) for step in range(1, 4)]
    assert (run.project, run.described["displayName"], run.described["tags"]) == ("support", "first", ["a"])
    assert run.ends == [0]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "private address; the operator may list the server in TRAINYARD_TRACKING_ALLOW"),
        ({"TRAINYARD_NODE_SANDBOX": "process"}, "without a sandbox"),
    ],
)
def test_client_is_kept_from_where_it_may_not_connect(
    make_world: Callable[..., World], server: FakeWandb, settings: dict[str, Any], why: str
) -> None:
    world = make_world(TRAINYARD_SECURITY_SECRET_KEY="k" * 43 + "=", **settings)
    job_id = start(world, server.url, training(steps=2))

    assert world.wait_for_end(job_id, 60).state is JobState.COMPLETED, world.describe(job_id)

    assert why in warnings(world, job_id)[-1].message
    assert server.seen == []
