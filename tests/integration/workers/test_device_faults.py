"""A GPU that breaks under an attempt: its job resumes elsewhere, and the fault counts against its node."""

from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Node, NodeFault, NodeRecord
from config.settings import Settings
from tests.systems.supervising import NODE, World, rows
from workers.node import spawn_supervisor
from workers.process_environment import process_environment

# Every read of the error counter finds one more error, unless the GPU is sound.
NVML = """
class NVMLError(Exception):
    pass


class Memory:
    used = 0


class Rates:
    gpu = 0


NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_FEATURE_ENABLED = 1, 0, 1
reads = []


def nvmlInit():
    pass


nvmlShutdown = nvmlInit


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetUtilizationRates(handle):
    return Rates


def nvmlDeviceGetMemoryInfo(handle):
    return Memory


def nvmlDeviceGetTotalEccErrors(handle, kind, since):
    reads.append(handle)
    return len(reads) * ERRORS


def nvmlDeviceGetRemappedRows(handle):
    return 0, 0, 0, 0


def nvmlDeviceGetRetiredPagesPendingStatus(handle):
    raise NVMLError("not supported")
"""
FAILS = "import time\ntime.sleep(1.0)\nraise SystemExit(1)\n"


@pytest.fixture
def gpu_world(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Its node offers GPUs that only the driver's library knows."""
    (tmp_path / "library").mkdir()

    def with_library(settings: Settings) -> dict[str, str]:
        environment = process_environment(settings)
        return {**environment, "PYTHONPATH": f"{tmp_path / 'library'}:{environment['PYTHONPATH']}"}

    monkeypatch.setattr(spawn_supervisor, "process_environment", with_library)
    world.spawn = spawn_supervisor.spawn_supervisor  # as a program, which finds the library
    with world.db.write() as session:
        for device in session.get_one(Node, NODE).devices:
            device.type = "h200"
        session.merge(NodeRecord(node=NODE, reputation=1.0, completions=0, disconnects=0, faults=0))
    return world


def fail(world: World, *, errors: int) -> str:
    (world.directory / "library" / "pynvml.py").write_text(f"ERRORS = {errors}\n{NVML}")
    job_id = world.start(FAILS)
    world.wait_for_end(job_id)
    return job_id


@pytest.mark.long
def test_failure_under_a_gpu_that_broke_is_its_nodes(gpu_world: World) -> None:
    job_id = fail(gpu_world, errors=1)

    job, attempt = gpu_world.job(job_id), gpu_world.attempt(job_id)
    assert (job.state, attempt.cause) == (JobState.QUEUED, "DEVICE_FAULT"), gpu_world.describe(job_id)
    assert "GPU 0 has 1 memory error that ECC could not correct" in (attempt.end_reason or "")
    assert job.excluded_nodes == [NODE]
    assert [fault.cause for fault in rows(gpu_world, NodeFault, node=NODE)] == ["DEVICE_FAULT"]
    assert [record.faults for record in rows(gpu_world, NodeRecord, node=NODE)] == [1]


@pytest.mark.long
def test_failure_under_a_sound_gpu_is_the_scripts(gpu_world: World) -> None:
    job_id = fail(gpu_world, errors=0)

    assert gpu_world.job(job_id).error_type == "SCRIPT_ERROR", gpu_world.describe(job_id)
    assert rows(gpu_world, NodeFault, node=NODE) == []
