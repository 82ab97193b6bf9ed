"""The example of roles on two node workers: trainer on one, rollouts on the other, and one is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.builders.example_jobs import ROOT, filled_in
from tests.faults.cluster import SHORT
from tests.systems.installations import running_system
from tests.systems.system import System, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

STEPS = 1500


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assets")
    (folder / "text.jsonl").write_text('{"text": "hello"}\n')
    return folder


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int], assets: Path) -> Iterator[System]:
    """Of two nodes with one slot each: an instance on each."""
    config = tmp_path_factory.mktemp("configuration") / "node.toml"
    config.write_text('[[devices]]\ntype = "cpu"\ncount = 1\n')
    roots = f"{assets}:{ROOT / 'examples'}"
    settings = {"TRAINYARD_STORAGE_ROOTS": roots, "TRAINYARD_NODE_CONFIG": str(config), **SHORT}
    with running_system(tmp_path_factory.mktemp("roles") / "system", owned_pids, "n1", "n2", **settings) as made:
        yield made


def levers(assets: Path, *, steps: int) -> dict[str, Any]:
    document = filled_in(ROOT / "examples/jobs/roles.json", {"ASSETS": str(assets), "EXAMPLES": str(ROOT / "examples")})
    document["training_config"]["hyperparameters"]["steps"] = str(steps)
    return document


def instances(system: System, job_id: str) -> list[dict[str, dict[str, Any]]]:
    """Of each attempt, by role."""
    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    return [{each["role"]: each for each in attempt["instances"]} for attempt in attempts]


def test_roles_on_two_nodes_learn_and_their_lines_are_found_by_role(system: System, assets: Path) -> None:
    job_id = system.submit(levers(assets, steps=60))
    system.wait_for_status(job_id, "COMPLETED", seconds=90)

    (placed,) = instances(system, job_id)
    assert {placed["trainer"]["node"], placed["rollout"]["node"]} == {"n1", "n2"}
    assert (placed["trainer"]["exit_code"], placed["rollout"]["exit_code"]) == (0, 143)
    lines = system.get(f"/v1/jobs/{job_id}/logs?role=rollout")["lines"]
    assert [line["line"].partition(" at ")[0] for line in lines] == ["rollout 0 serves"]


@pytest.mark.parametrize("role", ["trainer", "rollout"])
def test_all_roles_go_on_from_the_checkpoint_when_a_supervisor_is_killed(
    system: System, assets: Path, role: str
) -> None:
    job_id = system.submit(levers(assets, steps=STEPS))
    system.wait_for_step(job_id, 25, seconds=60)
    placed = instances(system, job_id)[0][role]
    killed = supervisor_on(system, job_id, placed["node"])

    killed.kill()
    job = system.wait_for_status(job_id, "COMPLETED", seconds=120)

    first, second = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert (job["attempt"], first["cause"]) == (2, "SUPERVISOR_LOST")
    assert second["start_step"] >= 20
    assert second["start_step"] % 20 == 0
    wait_for(lambda: not system.processes_of(job_id), seconds=20, what="no process left")


def supervisor_on(system: System, job_id: str, node: str) -> psutil.Process:
    of_job = [each for each in system.processes_of(job_id) if "workers.supervisor.main" in each.cmdline()]
    return next(each for each in of_job if each.environ().get("TRAINYARD_NODE_NAME") == node)
