"""Ranks that run out of the machine's memory: killed by a real kernel, or ended by a MemoryError."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.host.oom_score import holds_scores

GROUPS = Path("/sys/fs/cgroup/memory")  # version 1, as far as this test can make a group of its own
EATS = """
import os
open("{group}/cgroup.procs", "w").write(str(os.getpid()))
eaten = []
while True:
    eaten.append(bytearray(10_000_000))
"""


@pytest.fixture
def group(no_memory_kills: None) -> Iterator[Path]:
    path = GROUPS / f"trainyard-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(100_000_000))
        with contextlib.suppress(OSError):  # not every kernel counts swap
            (path / "memory.memsw.limit_in_bytes").write_text(str(100_000_000))
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        pytest.skip(f"needs the right to make a memory group (cgroup v1), as root has outside a container: {error}")
    yield path
    path.rmdir()


def test_rank_killed_by_the_kernel_for_memory_ends_as_out_of_memory(bare_world, group):
    job_id = bare_world.start(EATS.format(group=group))

    job = bare_world.wait_for_end(job_id, 30)

    assert job.state is JobState.QUEUED, bare_world.describe(job_id)
    assert bare_world.attempt(job_id).cause == "HOST_OUT_OF_MEMORY", bare_world.describe(job_id)
    assert "smaller batch" in bare_world.attempt(job_id).end_reason


def test_memory_error_of_a_script_is_the_machines(world):
    job_id = world.start("from trainyard import hooks\nhooks.init()\nx = bytearray(1 << 62)\n")

    job = world.wait_for_end(job_id)

    assert (job.error_type, world.attempt(job_id).cause) == ("HOST_OUT_OF_MEMORY",) * 2, world.describe(job_id)


def test_ranks_go_before_their_supervisor_when_memory_runs_out(world):
    script = "print(open('/proc/self/oom_score_adj').read().strip(), flush=True)\n"
    job_id = world.start(script)

    world.wait_for_end(job_id)

    assert int(world.log(job_id)[0]) > int(Path("/proc/self/oom_score_adj").read_text())


def test_ranks_can_not_go_behind_the_platform_when_memory_runs_out(world):
    script = (
        "import pathlib\nfile = pathlib.Path('/proc/self/oom_score_adj')\nnow = int(file.read_text())\n"
        "for wanted in (0, now - 101, now - 100):\n"
        "    try:\n        print(file.write_text(str(wanted)), flush=True)\n"
        "    except OSError as error:\n        print(type(error).__name__, flush=True)\n"
    )
    job_id = world.start(script)

    world.wait_for_end(job_id)

    # Where the kernel does not hold scores, /proc is read-only.
    met = ["PermissionError", "PermissionError", "3"] if holds_scores() else ["OSError"] * 3
    assert world.log(job_id) == met, world.describe(job_id)
