"""A training whose completions come from a role of their own: equal to the same training without, whatever happens."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.builders.example_jobs import ROOT, filled_in, shortened
from tests.faults.cluster import SHORT
from tests.systems.installations import running_system
from tests.systems.system import System, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STEPS = 16  # enough that a rollout killed after the second step is needed again
SECONDS = 250


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int], demo_assets: Path) -> Iterator[System]:
    """Of two nodes with two slots each: a training with one rollout has a node, with two or three both."""
    config = tmp_path_factory.mktemp("configuration") / "node.toml"
    config.write_text('[[devices]]\ntype = "cpu"\ncount = 2\n')
    roots = f"{demo_assets}:{ROOT / 'examples'}"
    settings = {"TRAINYARD_STORAGE_ROOTS": roots, "TRAINYARD_NODE_CONFIG": str(config), **SHORT}
    with running_system(tmp_path_factory.mktemp("rollouts") / "system", owned_pids, "n1", "n2", **settings) as made:
        yield made


def document(assets: Path, *, rollouts: int, devices: int = 1, steps: int = STEPS) -> dict[str, Any]:
    """The example, short; without rollouts the same as one role. ``devices``: that train."""
    found = filled_in(
        ROOT / "examples/jobs/rlhf-grpo-roles.json", {"ASSETS": str(assets), "EXAMPLES": str(ROOT / "examples")}
    )
    found = shortened(found, steps, steps)
    found["training_config"]["max_retries"] = 3
    if rollouts:
        found["tasks"][0]["resource_config"]["gpu_count"] = devices
        found["tasks"][1]["count"] = rollouts
        return found
    del found["tasks"]
    return {**found, "resource_config": {"gpu_count": devices}}


def result(system: System, job_id: str) -> tuple[str, list[float]]:
    """Digest of the weights, and the rewards of all steps."""
    series = system.get(f"/v1/jobs/{job_id}/metrics?names=reward")["series"]["reward"]
    return str(system.get(f"/v1/jobs/{job_id}/report")["model_hash"]), [point[2] for point in series]


@pytest.fixture(scope="module")
def expected(system: System, demo_assets: Path) -> tuple[str, list[float]]:
    """Of the same training as one role, by the same engine."""
    job_id = system.submit(document(demo_assets, rollouts=0))
    system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)
    return result(system, job_id)


def instances(system: System, job_id: str) -> list[dict[str, dict[str, Any]]]:
    """Of each attempt, by role and index."""
    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    return [{f"{each['role']} {each['index']}": each for each in attempt["instances"]} for attempt in attempts]


def rollouts_of(system: System, job_id: str) -> list[psutil.Process]:
    return [each for each in system.processes_of(job_id) if "workers.trainers.rollouts.main" in each.cmdline()]


def test_a_rollout_that_is_killed_starts_again_and_the_weights_are_those_of_one_role(
    system: System, demo_assets: Path, expected: tuple[str, list[float]]
) -> None:
    job_id = system.submit(document(demo_assets, rollouts=1))
    system.wait_for_step(job_id, 2, seconds=SECONDS)
    (rollout,) = rollouts_of(system, job_id)
    secret = rollout.environ()["TRAINYARD_JOB_SECRET"]

    rollout.send_signal(signal.SIGKILL)
    job = system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)

    assert job["attempt"] == 1
    assert result(system, job_id) == expected
    events = system.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
    (restarted,) = (event for event in events if event["type"] == "task.restarted")
    assert (restarted["data"]["role"], restarted["data"]["exit_code"]) == ("rollout", 137)
    (placed,) = instances(system, job_id)
    assert placed["trainer 0"]["node"] == placed["rollout 0"]["node"]
    assert placed["trainer 0"]["exit_code"] == 0
    assert {each["world_size"] for each in system.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]} == {1}
    said = f"{system.job(job_id)}{events}{system.get(f'/v1/jobs/{job_id}/logs?limit=1000')}"
    assert secret not in said
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")


def test_a_training_with_rollouts_on_another_node_is_paused_and_resumed_exactly(
    system: System, demo_assets: Path, expected: tuple[str, list[float]]
) -> None:
    job_id = system.submit(document(demo_assets, rollouts=2))
    system.wait_for_step(job_id, 2, seconds=SECONDS)

    assert system.call("POST", f"/v1/jobs/{job_id}/pause", {})[0] == 202
    system.wait_for_status(job_id, "PAUSED", seconds=90)
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")
    assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] == 202
    job = system.wait_for_status(job_id, "COMPLETED", seconds=SECONDS)

    first, second = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert job["attempt"] == 2
    assert second["start_step"] == first["end_step"] >= 2
    assert {each["node"] for each in instances(system, job_id)[0].values()} == {"n1", "n2"}
    assert result(system, job_id) == expected


def test_two_ranks_that_train_are_one_world_beside_their_rollouts(system: System, demo_assets: Path) -> None:
    made = [document(demo_assets, rollouts=count, devices=2, steps=2) for count in (0, 1)]
    alone, beside = (system.submit(each) for each in made)
    for job_id in (alone, beside):
        system.wait_for_status(job_id, "COMPLETED", seconds=2 * SECONDS)

    assert result(system, beside) == result(system, alone)
    (placed,) = instances(system, beside)
    assert [(each["first_rank"], each["ranks"]) for each in placed.values()] == [(0, 2), (2, 1)]
    assert {each["world_size"] for each in system.get(f"/v1/jobs/{beside}/checkpoints")["checkpoints"]} == {2}
