"""Volume claims that jobs of a project write to and read, under supervisors."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.host.own_users import lack_of_own_users, record_verdict
from app.models import Job
from app.services.jobs.control import requests as control_requests
from tests.systems.supervising import World

UIDS = "2900000-2900007"
SCRATCH: dict[str, Any] = {"path": "/scratch", "type": "claim", "claim": "scratch"}
WRITES = "open('/scratch/part.txt', 'a').write('one\\n')\nprint('wrote', flush=True)\n"
READS = """
import os
print(open('/scratch/part.txt').read().split(), open(os.environ['TRAINYARD_DATA_0']).read().split(), flush=True)
try:
    open('/scratch/more', 'w')
except OSError as error:
    print(error.strerror, flush=True)
"""


@pytest.fixture(params=["worker", "own"])
def world(request: pytest.FixtureRequest, make_world: Any, tmp_path: Path) -> World:
    """A node whose attempts have the worker's user, or one of their own."""
    uids = UIDS if request.param == "own" else ""
    if uids and (lack := lack_of_own_users(uids, tmp_path / "tried")):
        pytest.skip(f"here no attempt has a user of its own: {lack}")
    (tmp_path / "claims").mkdir()
    made: World = make_world(TRAINYARD_FETCH_PVC_DIR=str(tmp_path / "claims"), TRAINYARD_NODE_UIDS=uids)
    record_verdict(made.data_dir, "")
    return made


def start(world: World, script: str, *mounts: dict[str, Any], **document: Any) -> str:
    return world.start(script, resources={"mounts": list(mounts)}, **document)


def ended(world: World, job_id: str) -> JobState:
    state: JobState = world.wait_for_end(job_id).state
    return state


@pytest.mark.long
def test_one_job_writes_into_a_new_claim_and_the_next_reads_it(world: World, tmp_path: Path) -> None:
    first = start(world, WRITES, {**SCRATCH, "create": True})
    assert ended(world, first) is JobState.COMPLETED, world.describe(first)
    written = tmp_path / "claims" / "default" / "scratch" / "part.txt"
    assert written.stat().st_uid == os.geteuid()

    data = {"data_config": {"sources": [{"path": "pvc://scratch/part.txt"}]}}
    second = start(world, READS, {**SCRATCH, "read_only": True}, document=data)

    assert ended(world, second) is JobState.COMPLETED, world.describe(second)
    assert world.log(second) == ["['one'] ['one']", "Read-only file system"]
    assert written.read_text() == "one\n"


@pytest.mark.long
def test_claim_is_as_it_was_when_a_paused_job_goes_on(world: World) -> None:
    job_id = start(
        world,
        "import os, time\n" + WRITES + "print(len(open('/scratch/part.txt').readlines()), flush=True)\n"
        "time.sleep(120 if len(open('/scratch/part.txt').readlines()) == 1 else 0)\n",
        {**SCRATCH, "create": True},
    )
    world.wait_for_line(job_id, "1")

    with world.db.write() as session:
        control_requests.request_pause(session, job_id, actor="user-1", saves=False)
    world.nudge(job_id)
    assert ended(world, job_id) is JobState.PAUSED
    with world.db.write() as session:
        control_requests.resume(session, job_id, actor="user-1")
    world.take_up(job_id)

    assert ended(world, job_id) is JobState.COMPLETED, world.describe(job_id)
    assert world.log(job_id)[-1] == "2"


def test_claim_that_is_not_there_fails_the_job_with_the_way_out(world: World) -> None:
    job_id = start(world, WRITES, SCRATCH)

    assert ended(world, job_id) is JobState.FAILED
    failed = world.job(job_id)
    assert failed.error_type == "INVALID_CONFIG", world.describe(job_id)
    assert "resource_config.mounts.0.claim: this node has no volume claim scratch" in json.dumps(failed.error_message)


@pytest.mark.long
def test_job_that_fills_a_claim_is_ended_and_so_is_the_next_that_may_write_to_it(world: World, tmp_path: Path) -> None:
    fills = "import time\nopen('/scratch/file', 'wb').write(b'x' * (30 << 20))\ntime.sleep(60)\n"

    filled = start(world, fills, {**SCRATCH, "create": True, "size_mb": 20})
    assert ended(world, filled) is JobState.FAILED, world.describe(filled)
    (tmp_path / "claims/default/scratch/part").mkdir()
    part = start(world, "import time\ntime.sleep(60)\n", {**SCRATCH, "sub_path": "part", "size_mb": 20})
    assert ended(world, part) is JobState.FAILED, world.describe(part)
    emptied = start(world, fills, {"path": "/scratch", "type": "empty", "size_mb": 20})
    assert ended(world, emptied) is JobState.FAILED, world.describe(emptied)

    with world.db.read() as session:
        found = [session.get_one(Job, job_id) for job_id in (filled, part, emptied)]
    assert [job.error_type for job in found] == ["DISK_LIMIT_EXCEEDED"] * 3
    whose = ("the volume claim scratch holds", "the volume claim scratch holds", "the empty directory /scratch holds")
    for job, what in zip(found, whose, strict=True):
        assert f"{what} at least 30 MB, 20 MB are allowed" in str(job.error_message)
