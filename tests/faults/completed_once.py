"""A counting job that has begun to train, and what must be true of it once it has completed."""

from collections.abc import Iterator

import pytest

from tests.systems.installations import counting_job, running_system, steps_said
from tests.systems.system import System, wait_for

STEPS = 60


def assert_completed_once(system: System, job_id: str, *, seconds: float = 60) -> list[tuple[int, int]]:
    """The job completes; no step was trained by two attempts at the same time; returns what was said."""
    system.wait_for_status(job_id, "COMPLETED", seconds=seconds)
    said = steps_said(system.log_lines(job_id))
    assert said[-1][0] == STEPS
    assert [at for _, at in said] == sorted(at for _, at in said), "two attempts trained at the same time"
    assert system.statuses(job_id).count("COMPLETED") == 1
    wait_for(lambda: not system.processes_of(job_id), seconds=5, what="no process of the job left")
    return said


def last_checkpoint_before_attempt(system: System, job_id: str, number: int) -> int:
    """The step of the newest checkpoint that was recorded when the attempt began to train."""
    events = system.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
    began = [i for i, event in enumerate(events) if event["type"] == "attempt.started"][number - 1]
    return max(int(event["data"]["step"]) for event in events[:began] if event["type"] == "checkpoint.saved")


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[System]:
    """A system for tests that start again what they have killed."""
    folder = tmp_path_factory.mktemp("one_node") / "system"
    # Every fault is our own doing.
    with running_system(folder, owned_pids, "n1", TRAINYARD_QUARANTINE_FAULTS="0") as system:
        yield system


@pytest.fixture
def training(one_node: System, owned_pids: set[int]) -> Iterator[tuple[System, str]]:
    """A system with one node whose job has trained 15 of its 60 steps."""
    yield one_node, begun_training(one_node)
    owned_pids.update({one_node.redis.pid, *map(one_node.pid, ("api", "coordinator", "node-n1"))})


def begun_training(system: System) -> str:
    """A job that has trained 15 of its 60 steps."""
    job_id = system.submit(counting_job(steps=STEPS, step_seconds=0.1))
    system.wait_for_step(job_id, 15)
    return job_id
