"""Pauses whose checkpoint can't be saved, forced ones, and what else may end a training early: preemption, time."""

import os
import signal

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job
from app.storage.object_keys import job_key
from tests.systems.supervising import SLEEPS, World, environment, rows, training
from workers.node import spawn_supervisor

ASKS_AGAIN = "    if stop and run.should_stop():\n        break"
ENDS_ANYWAY = "    if stop:\n        break"
SAVES = '            open(f"{path}/state", "w").write(str(step))'


def asking_again(**options) -> str:
    script = training(**options)
    assert ENDS_ANYWAY in script
    return script.replace(ENDS_ANYWAY, ASKS_AGAIN)


def refuse_checkpoints(world: World, job_id: str) -> None:
    """No checkpoint of the job can be stored: something else lies where they go."""
    blocked = world.storage.local_path(f"{job_key(job_id)}/checkpoints")
    assert blocked is not None
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("in the way")


def accept_checkpoints(world: World, job_id: str) -> None:
    blocked = world.storage.local_path(f"{job_key(job_id)}/checkpoints")
    assert blocked is not None
    blocked.unlink()


def failed_pauses(world: World, job_id: str) -> list[str]:
    return [event.message for event in world.events(job_id) if event.type == "job.pause_failed"]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_job_that_can_not_be_saved_goes_on_training_and_can_be_paused_later(world, ranks):
    job_id = world.start(asking_again(steps=2000, pause=0.05), ranks=ranks)
    refuse_checkpoints(world, job_id)
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "pause")
    world.wait(lambda: failed_pauses(world, job_id) != [], 10, job_id)
    reached = world.log(job_id)[-1]
    world.wait(lambda: world.log(job_id)[-1] != reached, 10, job_id)

    job = world.job(job_id)
    assert (job.state, job.requested, job.attempt) == (JobState.TRAINING, None, 1), world.describe(job_id)
    (why,) = failed_pauses(world, job_id)
    assert "checkpoint" in why

    accept_checkpoints(world, job_id)
    world.request(job_id, "pause")
    job = world.wait_for_end(job_id)
    assert job.state is JobState.PAUSED, world.describe(job_id)
    (checkpoint,) = rows(world, Checkpoint)
    attempt = world.attempt(job_id)
    assert (attempt.end_step, attempt.lost_steps, attempt.exit_code) == (checkpoint.step, 0, 0)


@pytest.mark.long
def test_save_that_the_script_breaks_off_leaves_it_training(world):
    breaks = SAVES + "\n            if not world_saves(): raise RuntimeError('no room in the attic')"
    script = asking_again(steps=60, pause=0.05).replace(SAVES, breaks)
    job_id = world.start("def world_saves(): return False\n" + script)
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "pause")
    job = world.wait_for_end(job_id)

    assert (job.state, job.attempt) == (JobState.COMPLETED, 1), world.describe(job_id)
    assert "no room in the attic" in failed_pauses(world, job_id)[0]
    assert any("no room in the attic" in line for line in world.log(job_id))


def test_script_that_ends_although_nothing_was_saved_is_not_paused(world):
    job_id = world.start(training(steps=2000, pause=0.05))
    refuse_checkpoints(world, job_id)
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "pause")
    job = world.wait_for_end(job_id)

    assert (job.state, job.requested) == (JobState.QUEUED, None), world.describe(job_id)
    assert (job.error_type, len(failed_pauses(world, job_id))) == ("STORAGE_ERROR", 1)


@pytest.mark.long
def test_forced_pause_stops_it_and_says_what_is_lost(world):
    job_id = world.start(asking_again(steps=2000, pause=0.05, save_at=(2,)))
    world.wait(lambda: bool(rows(world, Checkpoint)), 10, job_id)
    stored = world.storage.local_path(f"{job_key(job_id)}/checkpoints")
    stored.rename(stored.with_name("aside"))
    stored.write_text("in the way")
    world.wait_for_line(job_id, "step 6")

    world.request(job_id, "pause", pause_force=True)
    job = world.wait_for_end(job_id)

    assert job.state is JobState.PAUSED, world.describe(job_id)
    assert failed_pauses(world, job_id) == []
    attempt = world.attempt(job_id)
    assert attempt.lost_steps == attempt.end_step - 2
    assert f"the {attempt.lost_steps} steps after step 2 were not saved" in attempt.end_reason


@pytest.mark.long
def test_pause_becomes_forced_while_it_is_saving(world):
    slow = SAVES + "\n            print('saving', flush=True); time.sleep(2); raise RuntimeError('no room')"
    job_id = world.start(asking_again(steps=2000, pause=0.05).replace(SAVES, slow))
    world.wait_for_line(job_id, "step 2")
    world.request(job_id, "pause")
    world.wait_for_line(job_id, "saving")

    world.request(job_id, "pause", pause_force=True)

    assert world.wait_for_end(job_id).state is JobState.PAUSED, world.describe(job_id)
    assert failed_pauses(world, job_id) == []


def test_pause_gives_up_its_checkpoint_when_it_is_asked_again_without_one(world):
    endless = SAVES + "\n            print('saving', flush=True); time.sleep(600)"
    job_id = world.start(asking_again(steps=2000, pause=0.05).replace(SAVES, endless))
    world.wait_for_line(job_id, "step 2")
    world.request(job_id, "pause")
    world.wait_for_line(job_id, "saving")

    world.request(job_id, "pause", pause_saves=False)

    assert world.wait_for_end(job_id, 10).state is JobState.PAUSED, world.describe(job_id)


def test_script_that_can_not_save_is_stopped_when_it_need_not(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    world.request(job_id, "pause", pause_saves=False)

    assert world.wait_for_end(job_id, 10).state is JobState.PAUSED, world.describe(job_id)


@pytest.fixture
def _hurried(world, monkeypatch):
    """Supervisors give a pause one second instead of ten minutes."""
    world.spawn = spawn_supervisor.spawn_supervisor
    hurried = (
        "import sys; from workers.supervisor import main; from workers.supervisor.control import stop_controller; "
        "del sys.argv[1]; stop_controller.SAVE_SECONDS['pause'] = 1.0; sys.exit(main.main())"
    )
    ordinary = spawn_supervisor.supervisor_command

    def command(*arguments):
        words = ordinary(*arguments)
        module = words.index("-m")
        return [*words[:module], "-c", hurried, *words[module + 1 :]]

    monkeypatch.setattr(spawn_supervisor, "supervisor_command", command)


@pytest.mark.long
@pytest.mark.usefixtures("_hurried")
def test_pause_that_no_rank_can_follow_in_time_loses_nothing_and_is_given_up(world):
    long_evaluation = "    if step == 3:\n        time.sleep(4)\n    stop = run.should_stop()"
    script = asking_again(steps=2000, pause=0.05).replace("    stop = run.should_stop()", long_evaluation)
    job_id = world.start(script)
    world.wait_for_line(job_id, "step 3")

    world.request(job_id, "pause")
    world.wait_for_line(job_id, "step 6")

    job = world.job(job_id)
    assert (job.state, job.requested, job.attempt) == (JobState.TRAINING, None, 1), world.describe(job_id)
    assert "not saved and stopped within" in failed_pauses(world, job_id)[0]
    world.request(job_id, "pause")
    assert world.wait_for_end(job_id).state is JobState.PAUSED, world.describe(job_id)
    assert world.attempt(job_id).lost_steps == 0


@pytest.mark.long
@pytest.mark.usefixtures("_hurried")
def test_script_that_saves_and_stops_too_late_is_put_back_without_cost(world):
    slow = SAVES + "\n            time.sleep(2.5)"
    job_id = world.start(training(steps=2000, pause=0.05).replace(SAVES, slow))
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "pause")
    job = world.wait_for_end(job_id)

    assert (job.state, job.retries_used, job.error_type) == (JobState.QUEUED, 0, None), world.describe(job_id)
    assert len(failed_pauses(world, job_id)) == 1
    (checkpoint,) = rows(world, Checkpoint)
    assert world.attempt(job_id).end_step == checkpoint.step


@pytest.mark.long
def test_time_limit_holds_after_a_pause_that_failed(world):
    job_id = world.start(asking_again(steps=2000, pause=0.05), max_runtime_seconds=5)
    refuse_checkpoints(world, job_id)
    world.wait_for_line(job_id, "step 2")
    world.request(job_id, "pause")

    job = world.wait_for_end(job_id, 30)

    assert (job.state, job.error_type) == (JobState.FAILED, "MAX_RUNTIME_EXCEEDED"), world.describe(job_id)
    lost = world.attempt(job_id).lost_steps
    assert f"the {lost} steps after step 0 were not saved and are lost" in job.error_message


@pytest.mark.long
@pytest.mark.usefixtures("no_memory_kills")
def test_time_limit_counts_what_earlier_attempts_ran(world):
    job_id = world.start(training(steps=2000, pause=0.05), max_runtime_seconds=6)
    world.wait_for_line(job_id, "step 40")  # about two seconds of the six
    (rank,) = [pid for pid in world.processes(job_id) if b"RANK=0" in environment(pid)]
    os.kill(rank, signal.SIGKILL)

    job = world.wait_for_end(job_id, 30)

    assert (job.state, job.error_type, job.attempt) == (JobState.FAILED, "MAX_RUNTIME_EXCEEDED", 2)
    assert 6 <= job.elapsed_seconds < 10
    assert [c.attempt for c in rows(world, Checkpoint)] == [2]


@pytest.mark.parametrize(("on_preemption", "state"), [("terminate", JobState.PREEMPTED), ("requeue", JobState.QUEUED)])
def test_preempted_job_saves_and_lets_its_devices_go(world, on_preemption, state):
    document = {"scheduling_config": {"on_preemption": on_preemption}}
    job_id = world.start(asking_again(steps=2000, pause=0.05), document=document)
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "preempt")
    job = world.wait_for_end(job_id)

    assert (job.state, job.retries_used) == (state, 0), world.describe(job_id)
    (checkpoint,) = rows(world, Checkpoint)
    assert world.attempt(job_id).end_step == checkpoint.step
    assert world.lease(job_id).released_at is not None


def test_preempted_job_ends_although_it_can_not_be_saved(world):
    job_id = world.start(
        asking_again(steps=2000, pause=0.05), document={"scheduling_config": {"on_preemption": "requeue"}}
    )
    refuse_checkpoints(world, job_id)
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "preempt")
    job = world.wait_for_end(job_id)

    assert (job.state, job.retries_used) == (JobState.QUEUED, 0), world.describe(job_id)
    assert "were not saved and are done again" in world.attempt(job_id).end_reason


def test_cancel_ends_a_pause_that_is_being_given_up(world):
    job_id = world.start(asking_again(steps=2000, pause=0.05))
    refuse_checkpoints(world, job_id)
    world.wait_for_line(job_id, "step 2")
    with world.db.write() as session:
        session.get_one(Job, job_id).requested = "pause"
    world.nudge(job_id)
    world.wait(lambda: failed_pauses(world, job_id) != [], 10, job_id)

    world.request(job_id, "cancel")

    assert world.wait_for_end(job_id, 10).state is JobState.CANCELLED
