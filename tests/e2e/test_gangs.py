"""One training on two nodes: two node workers with a CPU slot each, whose ranks really compute together."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.cluster import SHORT
from tests.systems.forked_agents import ForkedAgents
from tests.systems.installations import running_system
from tests.systems.system import System, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

REPOSITORY = Path(__file__).parents[2]
STEPS = 40
# Those that divide a model do so over both nodes.
OPTIONS = {"DEEPSPEED": {"zero_stage": "3"}, "MEGATRON": {"tensor_parallel": "2"}}


@pytest.fixture(scope="module")
def settings(assets: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of nodes with one slot each: a job on two has all there is."""
    config = tmp_path_factory.mktemp("configuration") / "node.toml"
    config.write_text('[[devices]]\ntype = "cpu"\ncount = 1\n')
    roots = str(Path(assets["model"]).parent)
    return {"TRAINYARD_STORAGE_ROOTS": roots, "TRAINYARD_NODE_CONFIG": str(config), **SHORT}


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory,
    owned_pids: set[int],
    forked_agents: ForkedAgents,
    settings: dict[str, str],
) -> Iterator[System]:
    with running_system(tmp_path_factory.mktemp("gangs") / "system", owned_pids, "n1", "n2", **settings) as made:
        forked_agents.serve_system(made)
        yield made


def gang_job(assets: dict[str, str], *, steps: int = STEPS, framework: str = "HF_TRAINER") -> dict[str, Any]:
    return {
        "name": "on two nodes",
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": assets["model"]},
            "framework": {"type": framework, "config": OPTIONS.get(framework, {})},
            "hyperparameters": {"max_steps": str(steps), "learning_rate": "8e-3"},
            "max_retries": 5,
        },
        "data_config": {
            "sources": [{"path": assets["train"], "format": "jsonl"}],
            "max_seq_length": 64,
            "batch_size": 4,
            "seed": 7,
        },
        "resource_config": {"node_count": 2, "gpu_count": 1, "device_type": "cpu"},
        "output_config": {"checkpoint": {"save_steps": 10}},
    }


def model_hash(system: System, job_id: str) -> str:
    return str(system.get(f"/v1/jobs/{job_id}/report")["model_hash"])


def evaluated(document: dict[str, Any], *, every: int) -> dict[str, Any]:
    document["training_config"]["evaluation"] = {"strategy": "steps", "steps": every}
    document["data_config"]["validation_split"] = 0.02
    return document


def losses(system: System, job_id: str, *, of: str = "loss") -> list[float]:
    return [point[2] for point in system.get(f"/v1/jobs/{job_id}/metrics?names={of}")["series"][of]]


def no_job_runs(system: System) -> bool:
    return all(node["active_jobs"] == 0 for node in system.get("/v1/nodes")["nodes"])


def supervisors(system: System, job_id: str) -> list[psutil.Process]:
    return [each for each in system.processes_of(job_id) if "workers.supervisor.main" in each.cmdline()]


@pytest.mark.parametrize("framework", ["HF_TRAINER", "FSDP", "DEEPSPEED", "MEGATRON"])
def test_a_training_on_two_nodes_is_paused_and_resumed_exactly(
    system: System, assets: dict[str, str], framework: str
) -> None:
    whole = system.submit(gang_job(assets, framework=framework))
    completed = system.wait_for_status(whole, "COMPLETED", seconds=200)

    paused = system.submit(gang_job(assets, framework=framework))
    system.wait_for_step(paused, 7, seconds=120)
    assert system.call("POST", f"/v1/jobs/{paused}/pause", {})[0] == 202
    system.wait_for_status(paused, "PAUSED", seconds=90)
    wait_for(lambda: no_job_runs(system), seconds=10, what="both nodes free")
    assert system.call("POST", f"/v1/jobs/{paused}/resume", {})[0] == 202
    resumed = system.wait_for_status(paused, "COMPLETED", seconds=200)

    attempts = system.get(f"/v1/jobs/{paused}/attempts")["attempts"]
    assert [attempt["node_names"] for attempt in attempts] == [["n1", "n2"]] * 2
    assert attempts[1]["start_step"] >= 7
    assert (completed["attempt"], resumed["attempt"]) == (1, 2)
    assert losses(system, paused) == losses(system, whole)
    assert model_hash(system, paused) == model_hash(system, whole)
    assert system.log_lines(whole, rank=0)
    assert {each["world_size"] for each in system.get(f"/v1/jobs/{whole}/checkpoints")["checkpoints"]} == {2}


def test_a_training_on_two_nodes_halts_where_its_document_says(system: System, assets: dict[str, str]) -> None:
    whole = system.submit(evaluated(gang_job(assets, steps=6), every=2))
    halting = evaluated(gang_job(assets, steps=6), every=100)
    halting["training_config"]["halt_at"] = {"at": [2, 4, 6]}
    halted = system.submit(halting)
    reasons = []

    for _ in range(2):
        reasons.append(system.wait_for_status(halted, "PAUSED", seconds=120)["status_reason"])
        wait_for(lambda: no_job_runs(system), seconds=60, what="both nodes free")
        assert system.call("POST", f"/v1/jobs/{halted}/resume", {})[0] == 202
    completed = system.wait_for_status(halted, "COMPLETED", seconds=120)
    undisturbed = system.wait_for_status(whole, "COMPLETED", seconds=10)

    assert reasons == ["halted at step 2", "halted at step 4"]
    assert (undisturbed["attempt"], completed["attempt"]) == (1, 3)
    attempts = system.get(f"/v1/jobs/{halted}/attempts")["attempts"]
    assert [(each["start_step"], each["end_step"]) for each in attempts] == [(0, 2), (2, 4), (4, 6)]
    assert [each["end_reason"] for each in attempts] == [*reasons, "completed"]
    assert losses(system, halted, of="eval_loss") == losses(system, whole, of="eval_loss")
    assert losses(system, halted) == losses(system, whole)
    assert model_hash(system, halted) == model_hash(system, whole)


def test_a_training_survives_the_loss_of_one_of_its_nodes(
    make_system: Callable[..., System], forked_agents: ForkedAgents, settings: dict[str, str], assets: dict[str, str]
) -> None:
    # Nodes of one data directory share the server that forks supervisors: each has its own processes only without.
    system = make_system(**settings, TRAINYARD_NODE_WARM="off").start("n1", "n2")
    forked_agents.serve_system(system)
    job_id = system.submit(gang_job(assets))
    system.wait_for_step(job_id, 12, seconds=120)
    lost = psutil.Process(system.pid("node-n2")).children(recursive=True)
    assert len([each for each in lost if each in supervisors(system, job_id)]) == 1, "one part on each node"

    system.kill("node-n2")
    for process in lost:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with its parent
            process.kill()
    wait_for(lambda: system.job(job_id)["status"] in ("QUEUED", "SCHEDULING"), seconds=60, what="the whole job to stop")
    wait_for(lambda: not system.ranks_of(job_id), seconds=20, what="no rank left")
    system.start_node("n2")
    job = system.wait_for_status(job_id, "COMPLETED", seconds=200)

    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert attempts[0]["cause"] in ("NODE_LOST", "SUPERVISOR_LOST")
    assert job["attempt"] == len(attempts) == 2
    assert attempts[1]["start_step"] >= 10
    assert len(losses(system, job_id)) == STEPS


def mpi_job(script: Path, text: str) -> dict[str, Any]:
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(text)
    framework = {"type": "CUSTOM", "custom_script_path": str(script), "config": {"launcher": "mpi"}}
    return {
        "name": "mpirun on two nodes",
        "training_config": {"framework": framework, "max_retries": 0},
        "resource_config": {"node_count": 2, "gpu_count": 1, "device_type": "cpu"},
    }


@pytest.fixture
def script(assets: dict[str, str], request: pytest.FixtureRequest) -> Path:
    name: str = request.node.name
    return Path(assets["model"]).parent / name / "train.py"


def test_mpirun_starts_the_ranks_of_two_nodes(system: System, script: Path) -> None:
    text = (
        "import torch, torch.distributed as dist\n"
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "dist.all_reduce(total)\n"
        "print('sums', world.allreduce(world.rank + 1), int(total), 'of rank', world.rank, flush=True)\n"
        "dist.destroy_process_group()\n"
    )

    job_id = system.submit(mpi_job(script, text))

    system.wait_for_status(job_id, "COMPLETED", seconds=120)
    for rank in (0, 1):
        assert f"sums 3 2 of rank {rank}" in "\n".join(system.log_lines(job_id, rank=rank))
    assert system.get(f"/v1/jobs/{job_id}/attempts")["attempts"][0]["node_names"] == ["n1", "n2"]
    wait_for(lambda: no_job_runs(system), seconds=10, what="both nodes free")


def test_a_failing_rank_of_mpi_on_another_node_is_named(system: System, script: Path) -> None:
    text = (
        "import os, time\n"
        "from mpi4py import MPI\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 1: os._exit(3)\n"
        "time.sleep(600)\n"
    )

    job_id = system.submit(mpi_job(script, text))

    job = system.wait_for_status(job_id, "FAILED", seconds=120)
    assert job["error_type"] == "SCRIPT_ERROR", job["error_message"]
    assert "rank 1 ended with exit code 3" in job["error_message"]
    wait_for(lambda: no_job_runs(system), seconds=30, what="both nodes free")


def test_a_job_of_mpi_on_two_nodes_is_paused_resumed_and_cancelled(system: System, script: Path) -> None:
    text = "import time\nprint('it works', flush=True)\nwhile True: time.sleep(0.1)\n"
    job_id = system.submit(mpi_job(script, text))

    for command, body, state in (("pause", {"force": True}, "PAUSED"), ("cancel", {}, "CANCELLED")):
        system.wait_for_status(job_id, "TRAINING", seconds=60)
        wait_for(lambda: len(system.ranks_of(job_id)) == 2, seconds=60, what="a rank on each node")
        status, answer = system.call("POST", f"/v1/jobs/{job_id}/{command}", body)
        assert status in (200, 202), answer
        system.wait_for_status(job_id, state, seconds=60)
        wait_for(lambda: no_job_runs(system) and not system.processes_of(job_id), seconds=30, what="nothing left")
        if state == "PAUSED":
            assert system.call("POST", f"/v1/jobs/{job_id}/resume", {})[0] == 202


def test_mpirun_of_other_vocabularies_starts_the_ranks_of_two_nodes(system: System, script: Path) -> None:
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        "import os\n"
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "print('sums', world.allreduce(world.rank + 1), os.environ['MODE'], 'of rank', world.rank, flush=True)\n"
    )
    command = "mpirun -np 2 --allow-run-as-root --hostfile /etc/mpi/hostfile -x MODE=fast python train.py"
    of_modelarts = {
        "kind": "job",
        "metadata": {"name": "mpi"},
        "algorithm": {"code_dir": f"file://{script.parent}/", "command": command},
        "spec": {"resource": {"flavor_id": "trainyard.cpu.1", "node_count": 2}},
    }
    workers = {"distributedFramework": "MPI", "numWorkers": 2, "slotsPerWorker": 1, "workingDir": str(script.parent)}
    of_run_ai = {
        "name": "mpi",
        "projectId": 1,
        "clusterId": "71f69d83-ba66-4822-adf5-55ce55efd210",
        "spec": workers,
        "masterSpec": {"command": "bash", "args": f"-c '{command}'"},
    }

    for path, body, number in (
        ("/v2/default/training-jobs", of_modelarts, lambda answer: answer["metadata"]["id"]),
        ("/api/v1/workloads/distributed", of_run_ai, lambda answer: answer["workloadId"]),
    ):
        status, answer = system.call("POST", path, body)
        assert status in (201, 202), answer
        job_id = f"job-{number(answer)}"
        system.wait_for_status(job_id, "COMPLETED", seconds=120)
        for rank in (0, 1):
            assert f"sums 3 fast of rank {rank}" in "\n".join(system.log_lines(job_id, rank=rank))
        assert system.get(f"/v1/jobs/{job_id}/attempts")["attempts"][0]["node_names"] == ["n1", "n2"]
    wait_for(lambda: no_job_runs(system), seconds=10, what="both nodes free")


def test_a_job_of_mpi_on_three_nodes_is_preempted_and_goes_on(system: System, script: Path) -> None:
    text = (
        "import os, time\n"
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "print('attempt', os.environ['TRAINYARD_ATTEMPT'], 'sums', world.allreduce(world.rank + 1), flush=True)\n"
        "while os.environ['TRAINYARD_ATTEMPT'] == '1': time.sleep(0.1)\n"
    )
    document = mpi_job(script, text)
    document["resource_config"]["node_count"] = 3
    document["scheduling_config"] = {"preemptible": True, "on_preemption": "requeue"}
    urgent = {"framework": {"type": "CUSTOM", "custom_command": ["sleep", "1"]}}
    system.start_node("n3")
    try:
        wait_for(lambda: len(system.get("/v1/nodes")["nodes"]) == 3, seconds=120, what="a third node")
        job_id = system.submit(document)
        system.wait_for_status(job_id, "TRAINING", seconds=120)
        wait_for(lambda: "sums 6" in "\n".join(system.log_lines(job_id, rank=2)), seconds=120, what="all ranks met")
        other = system.submit(
            {
                "name": "urgent",
                "training_config": urgent,
                "resource_config": {"gpu_count": 1, "device_type": "cpu"},
                "scheduling_config": {"priority": 9},
            }
        )
        system.wait_for_status(other, "COMPLETED", seconds=120)
        system.wait_for_status(job_id, "COMPLETED", seconds=120)
    finally:
        system.kill("node-n3", signal.SIGTERM)

    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert [each["node_names"] for each in attempts] == [["n1", "n2", "n3"]] * 2
    assert attempts[0]["end_reason"].startswith("preempted"), attempts[0]
    for rank in (0, 1, 2):
        assert "attempt 2 sums 6" in "\n".join(system.log_lines(job_id, rank=rank))
