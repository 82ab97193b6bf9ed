"""Halts of a script with a real supervisor and real ranks, also when a rank is killed."""

import os
import re
import signal

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job
from app.services.jobs.control import requests as control_requests
from tests.systems.supervising import World, environment, rows, training

pytestmark = pytest.mark.long

ASKS = "    stop = run.should_stop()\n"
SCRIPT = training(steps=8, pause=0.05).replace(ASKS, ASKS.replace("()", "(step=step)"))
assert training(steps=8, pause=0.05) != SCRIPT


def halting(world: World, script: str, *at: int, ranks: int = 1) -> str:
    """Submits the script with halts, and starts it; returns the job's id."""
    job_id = world.submit(script, ranks=ranks)
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        training_config = {**job.spec["training_config"], "halt_at": {"unit": "steps", "at": list(at)}}
        job.spec = {**job.spec, "training_config": training_config}
    world.take_up(job_id, ranks=ranks)
    return job_id


def again(world: World, job_id: str, *, ranks: int = 1) -> Job:
    """Back into the queue, and on the node; the job at the end of this attempt."""
    with world.db.write() as session:
        control_requests.resume(session, job_id, actor="user-1")
    world.take_up(job_id, ranks=ranks)
    return world.wait_for_end(job_id, 60)


def kill_a_rank(world: World, job_id: str) -> None:
    (rank,) = [pid for pid in world.processes(job_id) if b"RANK=1" in environment(pid)]
    os.kill(rank, signal.SIGKILL)


def steps_said(world: World, job_id: str) -> list[int]:
    return [int(step) for line in world.log(job_id) for step in re.findall(r"^step (\d+)", line)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_job_halts_at_each_of_its_steps_and_goes_on_with_the_next(world: World, ranks: int) -> None:
    job_id = halting(world, SCRIPT, 3, 5, ranks=ranks)

    halted = world.wait_for_end(job_id, 60)
    assert (halted.state, halted.status_reason, halted.current_step) == (JobState.PAUSED, "halted at step 3", 3), (
        world.describe(job_id)
    )
    assert again(world, job_id, ranks=ranks).status_reason == "halted at step 5"
    assert again(world, job_id, ranks=ranks).state is JobState.COMPLETED, world.describe(job_id)

    assert [saved.step for saved in rows(world, Checkpoint, job_id=job_id)] == [3, 5]
    assert sorted(steps_said(world, job_id)) == sorted([*range(1, 9)] * ranks)
    assert world.job(job_id).retries_used == 0


@pytest.mark.usefixtures("no_memory_kills")
def test_rank_that_is_killed_before_its_halt_reaches_it_in_the_next_attempt(world: World) -> None:
    waits = "    while step == 2 and os.environ['TRAINYARD_ATTEMPT'] == '1':\n        time.sleep(0.05)\n"
    job_id = halting(world, "import os\n" + SCRIPT.replace("    stop = ", f"{waits}    stop = "), 3, ranks=2)
    world.wait(lambda: steps_said(world, job_id).count(2) == 2, 30, job_id)

    kill_a_rank(world, job_id)

    world.wait(lambda: world.job(job_id).state is JobState.PAUSED, 60, job_id)
    assert (world.job(job_id).status_reason, world.job(job_id).attempt) == ("halted at step 3", 2)


@pytest.mark.usefixtures("no_memory_kills")
def test_rank_that_is_killed_after_the_checkpoint_of_its_halt_leaves_the_job_there(world: World) -> None:
    ends = "    if stop:\n        break\n"
    assert ends in SCRIPT
    slow = SCRIPT.replace(ends, "    if stop:\n        print('saved', flush=True); time.sleep(60); break\n")
    job_id = halting(world, slow, 3, ranks=2)
    world.wait(lambda: world.log(job_id).count("saved") == 2, 30, job_id)

    kill_a_rank(world, job_id)

    job = world.wait_for_end(job_id, 60)
    stands = (job.state, job.status_reason, job.attempt)
    assert stands == (JobState.PAUSED, "halted at step 3", 1), world.describe(job_id)


@pytest.mark.parametrize("script", ["print('trained')\n", "from trainyard import hooks\nprint(hooks.init().rank)\n"])
def test_script_that_reports_no_step_fails_for_its_halts(world: World, script: str) -> None:
    job_id = halting(world, script, 3)

    job = world.wait_for_end(job_id, 30)

    assert (job.state, job.error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert "this one has reported no step by them" in (job.error_message or "")


def test_script_that_catches_the_error_of_its_halt_fails(world: World) -> None:
    script = (
        "import contextlib\nfrom trainyard import hooks\nrun = hooks.init()\nfor step in range(1, 9):\n"
        "    with contextlib.suppress(Exception):\n        run.log_metrics({'loss': 1.0}, step=step)\n"
    )
    job = world.wait_for_end(halting(world, script, 3), 30)

    assert (job.state, job.error_type, job.retries_used) == (JobState.FAILED, "INVALID_CONFIG", 0)
    assert "is past 3, where the job halts" in (job.error_message or "")
