"""Jobs on a real GPU through the real system: what they see and take of it, and that all of it comes back."""

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.driver import asked, computing_pids, memory_used_mb
from tests.gpu.jobs import model_job
from tests.systems.installations import counting_job
from tests.systems.system import System, wait_for

pytestmark = pytest.mark.gpu

HELD_MB = 2000


def holding_job(*, megabytes: int = HELD_MB, fraction: float | None = None, **values: str) -> dict[str, Any]:
    """A document for the script that holds memory of a GPU."""
    training = {
        "training_type": "SFT",
        "base_model": {"model_id": "model"},
        "framework": {"type": "CUSTOM", "custom_script_path": "hold_gpu.py"},
        "hyperparameters": {"megabytes": str(megabytes), **values},
        "max_retries": 0,
    }
    part = {} if fraction is None else {"gpu_fraction": fraction}
    return counting_job(training_config=training, resource_config={"gpu_count": 1, "device_type": "cuda", **part})


def wait_until_free(before_mb: int) -> None:
    wait_for(lambda: not computing_pids() and memory_used_mb() <= before_mb + 16, seconds=30, what="the GPU to be free")


def test_a_node_offers_what_the_driver_says(shared_system: System) -> None:
    name, memory_mb = asked("name,memory.total")

    device = shared_system.get("/v1/nodes/n1")["devices"][0]

    assert device["memory_mb"] == int(memory_mb)
    assert device["type"] in name.lower().replace(" ", "-")
    assert not device["simulated"]
    assert computing_pids() == set()  # a node that waits takes nothing of it


def test_a_model_learns_on_the_gpu(shared_system: System, demo: Path) -> None:
    before = memory_used_mb()

    job_id = shared_system.submit(model_job(demo, steps=300))
    shared_system.wait_for_step(job_id, 100, seconds=120)
    ranks = {process.pid for process in shared_system.ranks_of(job_id)}
    assert computing_pids() == ranks
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=120)

    series = shared_system.get(f"/v1/jobs/{job_id}/metrics")["series"]
    losses = [point[2] for point in series["loss"]]
    assert len(losses) == 300
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])
    assert max(point[2] for point in series["gpu_memory_mb"]) > before + 300
    assert max(point[2] for point in series["gpu_utilization"]) > 0
    wait_until_free(before)


def test_a_pause_frees_the_gpu_and_the_job_goes_on(shared_system: System, demo: Path) -> None:
    before = memory_used_mb()
    job_id = shared_system.submit(model_job(demo, steps=300))
    shared_system.wait_for_step(job_id, 60, seconds=120)

    assert shared_system.call("POST", f"/v1/jobs/{job_id}/pause")[0] == 202
    paused = shared_system.wait_for_status(job_id, "PAUSED", seconds=60)
    wait_until_free(before)
    assert shared_system.call("POST", f"/v1/jobs/{job_id}/resume")[0] == 202
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=180)

    first, second = shared_system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert first["end_step"] == second["start_step"] == paused["current_step"] < second["end_step"] == 300


def test_killed_processes_leave_nothing_on_the_gpu(shared_system: System, demo: Path) -> None:
    before = memory_used_mb()
    job_id = shared_system.submit(model_job(demo, steps=300))
    shared_system.wait_for_step(job_id, 60, seconds=120)

    shared_system.supervisor_of(job_id).kill()
    wait_until_free(before)
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=180)

    attempts = shared_system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert [attempt["end_step"] for attempt in attempts][-1] == 300
    assert attempts[-1]["start_step"] >= 50
    wait_until_free(before)


def test_a_script_sees_its_gpu_and_what_it_takes_is_shown(shared_system: System) -> None:
    job_id = shared_system.submit(holding_job(steps="30"))
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=90)

    (line,) = (line for line in shared_system.log_lines(job_id) if line.startswith("devices "))
    assert line.split() == ["devices", "1", asked("uuid")[0], "nvidia0"]
    used = shared_system.get(f"/v1/jobs/{job_id}/metrics?names=gpu_memory_mb")["series"]["gpu_memory_mb"]
    assert max(point[2] for point in used) > HELD_MB


def test_children_that_went_their_own_way_end_with_the_job(shared_system: System) -> None:
    before = memory_used_mb()
    job_id = shared_system.submit(holding_job(leaves_child="true", steps="50"))

    wait_for(lambda: memory_used_mb() > before + 2 * HELD_MB, seconds=90, what="script and child to hold memory")
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=90)

    wait_until_free(before)
    assert computing_pids() == set()


def test_memory_that_is_not_there_is_named(shared_system: System) -> None:
    total_mb = int(asked("memory.total")[0])
    job_id = shared_system.submit(holding_job(megabytes=2 * total_mb))

    job = shared_system.wait_for_status(job_id, "FAILED", seconds=180)

    assert job["error_type"] == "OUT_OF_MEMORY"
    assert "CUDA out of memory" in job["error_message"]


def test_a_kernel_that_fails_is_the_scripts_fault_not_the_gpus(shared_system: System) -> None:
    job_id = shared_system.submit(holding_job(asserts="true"))

    job = shared_system.wait_for_status(job_id, "FAILED", seconds=180)

    assert job["error_type"] == "SCRIPT_ERROR"
    assert "device-side assert" in job["error_message"]
    assert shared_system.get("/v1/nodes/n1")["status"] == "ready"
    again = shared_system.submit(holding_job())
    shared_system.wait_for_status(again, "COMPLETED", seconds=90)


def test_two_jobs_share_a_gpu(shared_system: System) -> None:
    jobs = [shared_system.submit(holding_job(fraction=0.5, steps="40")) for _ in range(2)]

    wait_for(
        lambda: [shared_system.job(job_id)["status"] for job_id in jobs] == ["TRAINING"] * 2,
        seconds=90,
        what="both to train at once",
    )
    wait_for(lambda: memory_used_mb() > 2 * HELD_MB, seconds=30, what="both to hold memory")
    assert shared_system.get("/v1/nodes/n1")["devices"][0]["share_in_use"] == 1.0
    for job_id in jobs:
        shared_system.wait_for_status(job_id, "COMPLETED", seconds=90)


def test_what_does_not_fit_into_a_part_is_trained_in_smaller_batches(shared_system: System, demo: Path) -> None:
    megabytes = 1500
    document = model_job(demo, steps=20, batch_size=1024, gpu_memory_request_mb=megabytes)
    before = memory_used_mb()

    job_id = shared_system.submit(document)
    shared_system.wait_for_step(job_id, 5, seconds=240)
    # The context of a process and its libraries come on top of what it allocates.
    assert memory_used_mb() < before + megabytes + 1000
    shared_system.wait_for_status(job_id, "COMPLETED", seconds=240)

    events = shared_system.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
    assert any("batch" in event["message"] and event["reason"] == "OUT_OF_MEMORY" for event in events), events
