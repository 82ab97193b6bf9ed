"""What people and the platform ask of a running attempt: cancel, pause, requeue, save now, time is up."""

import os
import signal
import socket
import time

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job
from app.services.jobs.control import requests as control_requests
from tests.systems.supervising import SLEEPS, STUBBORN, rows, training


@pytest.mark.long
@pytest.mark.parametrize("script", [SLEEPS, STUBBORN], ids=["plain", "stubborn"])
def test_cancel_leaves_no_process_after_five_seconds(world, script):
    job_id = world.start(script)
    world.wait_for_line(job_id, "ready")
    began = time.monotonic()

    world.request(job_id, "cancel")
    job = world.wait_for_end(job_id)

    assert job.state is JobState.CANCELLED
    assert time.monotonic() - began < 5
    assert world.processes(job_id) == []
    assert world.attempt(job_id).can_checkpoint is None, "whether it saves on request is unknown"


@pytest.mark.long
def test_cancel_without_a_nudge_is_seen_at_the_next_renewal(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    began = time.monotonic()

    with world.db.write() as session:
        session.get_one(Job, job_id).requested = "cancel"

    assert world.wait_for_end(job_id).state is JobState.CANCELLED
    assert time.monotonic() - began < 5


def test_cancel_of_a_script_that_saves_keeps_checkpoints_and_leaves_no_process(world):
    job_id = world.start(training(steps=1000, pause=0.05, save_at=(2,)))
    world.wait_for_line(job_id, "step 4")
    began = time.monotonic()

    world.request(job_id, "cancel")
    job = world.wait_for_end(job_id)

    assert job.state is JobState.CANCELLED
    assert time.monotonic() - began < 5
    assert world.processes(job_id) == []
    assert [c.step for c in rows(world, Checkpoint)] == [2]
    assert world.attempt(job_id).can_checkpoint is True


@pytest.mark.long
@pytest.mark.parametrize(("requested", "state"), [("pause", JobState.PAUSED), ("requeue", JobState.QUEUED)])
def test_pause_and_requeue_save_first(world, requested, state):
    job_id = world.start(training(steps=1000, pause=0.05))
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, requested)
    job = world.wait_for_end(job_id)

    assert job.state is state, world.describe(job_id)
    assert job.requested is None
    (checkpoint,) = rows(world, Checkpoint)
    assert world.attempt(job_id).end_step == checkpoint.step
    assert world.attempt(job_id).lost_steps == 0


def test_script_that_cannot_save_is_ended_by_a_requeue(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    world.request(job_id, "requeue")

    assert world.wait_for_end(job_id).state is JobState.QUEUED


@pytest.mark.long
def test_checkpoint_that_is_asked_for_outside_is_saved_while_the_job_goes_on(any_world):
    job_id = any_world.start(training(steps=60, pause=0.05))
    any_world.wait(lambda: any_world.attempt(job_id).can_checkpoint is True, 10.0, job_id)

    with any_world.db.write() as session:
        control_requests.request_checkpoint(session, job_id, actor="user-1")
    any_world.nudge(job_id)
    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    assert len(rows(any_world, Checkpoint)) == 1
    recorded = [event.type for event in any_world.events(job_id)]
    assert recorded.index("job.checkpoint_requested") < recorded.index("checkpoint.saved")
    assert any_world.job(job_id).attempt == 1


@pytest.mark.long
def test_job_over_its_time_limit_saves_and_fails(world):
    job_id = world.start(training(steps=1000, pause=0.05), max_runtime_seconds=2)

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "MAX_RUNTIME_EXCEEDED"), world.describe(job_id)
    assert len(rows(world, Checkpoint)) == 1


def test_sigterm_to_the_supervisor_puts_the_job_back(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    os.kill(world.lease(job_id).supervisor_pid, signal.SIGTERM)

    assert world.wait_for_end(job_id).state is JobState.QUEUED


@pytest.mark.long
def test_second_start_of_an_attempt_is_refused(world):
    job_id = world.start(SLEEPS)

    assert not world.start_supervisor(job_id, 1)

    world.wait_for_line(job_id, "ready")
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


def test_control_request_is_applied_while_a_model_is_being_fetched(world, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as deaf_hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{deaf_hub.getsockname()[1]}")
        job_id = world.submit("pass\n")
        with world.db.write() as session:
            job = session.get_one(Job, job_id)
            base = {**job.spec["training_config"], "base_model": {"model_id": "org/model"}}
            job.spec = {**job.spec, "training_config": base}
        world.take_up(job_id)
        connection, _ = deaf_hub.accept()

        world.request(job_id, "cancel")

        assert world.wait_for_end(job_id, 5).state is JobState.CANCELLED
        connection.close()


def test_pause_during_preparing_needs_no_checkpoint(world, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as deaf_hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{deaf_hub.getsockname()[1]}")
        job_id = world.submit("pass\n", document={"name": "paused-early"})
        with world.db.write() as session:
            job = session.get_one(Job, job_id)
            base = {**job.spec["training_config"], "base_model": {"model_id": "org/model"}}
            job.spec = {**job.spec, "training_config": base}
        world.take_up(job_id)
        deaf_hub.accept()[0].close()

        world.request(job_id, "pause")

        assert world.wait_for_end(job_id, 5).state is JobState.PAUSED


@pytest.mark.long
def test_rank_that_connects_after_the_control_request_stops_with_the_others(world):
    late = "import os, time\nif os.environ['RANK'] == '1': time.sleep(2)\n"
    job_id = world.start(late + training(steps=1000, pause=0.05), ranks=2)
    world.wait_for_line(job_id, "step 2")

    world.request(job_id, "pause")
    job = world.wait_for_end(job_id)

    assert job.state is JobState.PAUSED, world.describe(job_id)
    assert world.attempt(job_id).exit_code == 0
