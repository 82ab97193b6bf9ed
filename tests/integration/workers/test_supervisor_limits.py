"""Jobs that reach a limit of resource_config.limits under a supervisor: a real kernel holds it."""

import pytest

from app.domain.lifecycle.states import JobState
from workers.sandbox.control_groups import CONTROLLERS, find_hierarchies

needs_groups = pytest.mark.skipif(
    set(find_hierarchies().parents) != set(CONTROLLERS),
    reason="control groups can't be made here: run as root, or with Delegate=yes",
)

EATS = """
eaten = []
while len(eaten) < 60:
    eaten.append(b"x" * 10_000_000)
print("ate", flush=True)
"""
FORKS = """
import os
made = 0
try:
    while made < 500:
        if not os.fork():
            os.closerange(0, 256)
            os.setsid()
            import time
            time.sleep(120)
        made += 1
except OSError as error:
    print("refused", type(error).__name__, made < 100, flush=True)
"""


def left(job_id):
    return [path for parent in find_hierarchies().parents.values() for path in parent.glob(f"{job_id}.*")]


@needs_groups
@pytest.mark.usefixtures("no_memory_kills")
def test_job_over_its_memory_limit_ends_with_the_limit_in_its_reason(world):
    job_id = world.start(EATS, resources={"limits": {"ram_mb": 300}})

    job = world.wait_for_end(job_id, 30)

    assert job.state is JobState.QUEUED, world.describe(job_id)
    attempt = world.attempt(job_id)
    assert attempt.cause == "HOST_OUT_OF_MEMORY", world.describe(job_id)
    assert "its memory limit of 300 MB (resource_config.limits.ram_mb)" in attempt.end_reason
    assert "ate" not in world.log(job_id)
    world.wait(lambda: not left(job_id), 10, job_id)


@needs_groups
def test_fork_bomb_is_refused_processes_and_leaves_none(world):
    job_id = world.start(FORKS, resources={"limits": {"processes": 100}})

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert "refused BlockingIOError True" in world.log(job_id)
    assert world.processes(job_id) == []
    world.wait(lambda: not left(job_id), 10, job_id)


@needs_groups
def test_job_without_limits_has_the_nodes_limit_of_processes(make_world):
    world = make_world(TRAINYARD_NODE_MAX_PROCESSES="100")
    job_id = world.start(FORKS)

    world.wait_for_end(job_id)

    assert "refused BlockingIOError True" in world.log(job_id)


def test_job_that_keeps_too_many_files_is_ended_and_not_retried(world):
    script = "import time\nopen('file', 'wb').write(b'x' * (30 << 20))\nprint('written', flush=True)\ntime.sleep(60)\n"
    job_id = world.start(script, resources={"limits": {"storage_mb": 20}})

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "DISK_LIMIT_EXCEEDED"), world.describe(job_id)
    assert "20 MB are allowed (resource_config.limits.storage_mb)" in job.error_message
    assert world.log(job_id) == ["written"]
