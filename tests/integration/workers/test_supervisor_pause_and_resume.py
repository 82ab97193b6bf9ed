"""Pause and resume with a real supervisor and real ranks: what the verbs promise is what happens."""

import re

import pytest

from app.domain.errors import IllegalTransition
from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job, Reservation
from app.services.jobs.control import requests as control_requests
from tests.systems.supervising import SLEEPS, World, rows, training


def pause(world: World, job_id: str, *, saves: bool = True) -> None:
    with world.db.write() as session:
        control_requests.request_pause(session, job_id, actor="user-1", saves=saves)
    world.nudge(job_id)


def resume(world: World, job_id: str, checkpoint_id: str = "") -> None:
    """Back into the queue, and on the node again."""
    with world.db.write() as session:
        control_requests.resume(session, job_id, actor="user-1", checkpoint_id=checkpoint_id)
    world.take_up(job_id)


def take_back(world: World, job_id: str) -> None:
    with world.db.write() as session:
        assert session.get_one(Job, job_id).requested == "pause"
        control_requests.resume(session, job_id, actor="user-1")
    world.nudge(job_id)


def steps_said(world: World, job_id: str) -> list[int]:
    return [int(step) for line in world.log(job_id) for step in re.findall(r"^step (\d+)", line)]


@pytest.mark.long
def test_paused_job_has_a_checkpoint_and_no_device_and_goes_on_with_the_next_step(any_world: World) -> None:
    job_id = any_world.start(training(steps=30, pause=0.3))
    any_world.wait(lambda: any_world.attempt(job_id).can_checkpoint is True, 10.0, job_id)
    any_world.wait_for_line(job_id, "step 3")

    pause(any_world, job_id)
    paused = any_world.wait_for_end(job_id)

    (saved,) = rows(any_world, Checkpoint)
    assert (paused.state, paused.latest_checkpoint_id) == (JobState.PAUSED, saved.id), any_world.describe(job_id)
    assert rows(any_world, Reservation) == []
    assert any_world.processes(job_id) == []
    resume(any_world, job_id)
    assert any_world.wait_for_end(job_id).state is JobState.COMPLETED, any_world.describe(job_id)
    assert steps_said(any_world, job_id) == list(range(1, 31)), "every step once"


@pytest.mark.long
def test_script_that_said_once_that_it_saves_is_waited_for_when_it_starts_again(world: World) -> None:
    job_id = world.start("import time\ntime.sleep(1.5)\n" + training(steps=30, pause=0.3))
    world.wait(lambda: world.attempt(job_id).can_checkpoint is True, 10.0, job_id)
    pause(world, job_id)
    world.wait_for_end(job_id)
    resume(world, job_id)
    world.wait(lambda: world.job(job_id).state is JobState.TRAINING, 10.0, job_id)
    assert world.attempt(job_id, 2).can_checkpoint is None, "it has not come to its hello yet"

    pause(world, job_id)
    paused = world.wait_for_end(job_id)

    assert paused.state is JobState.PAUSED, world.describe(job_id)
    assert len(rows(world, Checkpoint, attempt=2)) == 1
    resume(world, job_id)
    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert steps_said(world, job_id) == list(range(1, 31)), "every step once"


@pytest.mark.long
def test_paused_job_goes_on_from_the_checkpoint_that_is_chosen(world: World) -> None:
    job_id = world.start(training(steps=30, pause=0.3, save_at=(2, 4)))
    world.wait_for_line(job_id, "step 6")
    pause(world, job_id)
    world.wait_for_end(job_id)
    chosen = next(saved for saved in rows(world, Checkpoint) if saved.step == 4)

    resume(world, job_id, chosen.id)

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert "resumed at 4" in world.log(job_id)
    assert world.attempt(job_id, 2).start_step == 4


@pytest.mark.long
def test_script_without_our_hooks_is_paused_only_without_a_checkpoint_and_starts_again(world: World) -> None:
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    with pytest.raises(IllegalTransition, match="save_checkpoint: false"):
        pause(world, job_id)

    pause(world, job_id, saves=False)

    assert world.wait_for_end(job_id).state is JobState.PAUSED, world.describe(job_id)
    assert world.processes(job_id) == []
    resume(world, job_id)
    world.wait(lambda: world.log(job_id).count("ready") == 2, 10.0, job_id)
    world.request(job_id, "cancel")
    assert world.wait_for_end(job_id).state is JobState.CANCELLED


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_job_that_has_not_saved_yet_trains_on_when_its_pause_is_taken_back(world: World, ranks: int) -> None:
    asks = "    stop = run.should_stop()\n"
    waits = "    while stop:\n        print('asked', flush=True)\n        time.sleep(0.05)\n    " + asks
    script = training(steps=30, pause=0.05)
    assert asks in script
    job_id = world.start(script.replace(asks, asks + waits), ranks=ranks)
    world.wait_for_line(job_id, "step 2")
    pause(world, job_id)
    world.wait_for_line(job_id, "asked")

    take_back(world, job_id)
    job = world.wait_for_end(job_id)

    assert (job.state, job.attempt, job.requested) == (JobState.COMPLETED, 1, None), world.describe(job_id)
    assert rows(world, Checkpoint) == []
    assert [each.type for each in world.events(job_id) if "pause" in each.type] == [
        "job.pause_requested",
        "job.pause_withdrawn",
    ]


@pytest.mark.long
def test_job_that_saves_when_its_pause_is_taken_back_continues_from_there(world: World) -> None:
    saves = '            open(f"{path}/state", "w").write(str(step))'
    script = training(steps=30, pause=0.05)
    assert saves in script
    job_id = world.start(script.replace(saves, saves + "\n            print('saving', flush=True); time.sleep(3)"))
    world.wait_for_line(job_id, "step 2")
    pause(world, job_id)
    world.wait_for_line(job_id, "saving")

    take_back(world, job_id)
    job = world.wait_for_end(job_id)

    assert (job.state, job.retries_used) == (JobState.QUEUED, 0), world.describe(job_id)
    world.take_up(job_id)
    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert steps_said(world, job_id) == list(range(1, 31)), "every step once"


def test_pause_that_is_taken_back_can_be_asked_for_again(world: World) -> None:
    job_id = world.start(training(steps=2000, pause=0.05))
    world.wait_for_line(job_id, "step 2")
    with world.db.write() as session:  # both before the supervisor reads either
        control_requests.request_pause(session, job_id, actor="user-1")
    take_back(world, job_id)
    reached = world.log(job_id)[-1]
    world.wait(lambda: world.log(job_id)[-1] != reached, 10.0, job_id)

    pause(world, job_id)

    assert world.wait_for_end(job_id).state is JobState.PAUSED, world.describe(job_id)
