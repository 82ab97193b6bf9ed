"""A rank that not even SIGKILL ends: its devices are out of service until it is gone, and the job resumes on others."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.host import processes
from app.models import Lease
from app.services.attempts import leases
from tests.builders.leaving_behind import offered, out_of_service, stuck_device_messages
from tests.doubles.unkillable import unkillable
from tests.systems.supervising import NODE, SLEEPS, World, environment, training
from workers.node.attempt_manager import AttemptManager
from workers.run_dir.layout import run_directory

PATIENCE_SECONDS = 1.0


@pytest.fixture
def impatient(make_world):
    return make_world(TRAINYARD_WATCH_STUCK_SECONDS=str(PATIENCE_SECONDS))


@pytest.fixture
def manager(impatient):
    return AttemptManager(impatient.settings, impatient.db, NODE)


@pytest.fixture(params=["auto", "process"])
def confined_or_not(request, make_world):
    """A world with its manager, with bubblewrap and as plain processes."""
    made = make_world(TRAINYARD_WATCH_STUCK_SECONDS=str(PATIENCE_SECONDS), TRAINYARD_NODE_SANDBOX=request.param)
    return made, AttemptManager(made.settings, made.db, NODE)


def rank_of(world: World, job_id: str, rank: int = 0) -> int:
    (found,) = [pid for pid in world.processes(job_id) if f"RANK={rank}".encode() in environment(pid)]
    return found


@pytest.mark.long
def test_devices_of_a_cancelled_job_come_back_when_its_last_process_is_gone(impatient, manager):
    world = impatient
    job_id = world.start(SLEEPS, ranks=2)
    world.wait_for_line(job_id, "ready")
    rank = rank_of(world, job_id)

    with unkillable(rank):
        world.request(job_id, "cancel")
        assert world.wait_for_end(job_id, 30).state is JobState.CANCELLED, world.describe(job_id)
        assert processes.start_ticks(rank) is not None, "what is tested: it lives"

        assert (out_of_service(world), offered(world)) == ([0, 1], {2, 3})
        (said,) = stuck_device_messages(world, job_id)
        assert "devices 0, 1 of node local are out of service" in said
        manager.clean()
        manager.clean()
        assert out_of_service(world) == [0, 1]
        assert len(stuck_device_messages(world, job_id)) == 1, "it is said once"
    world.wait(lambda: processes.start_ticks(rank) is None, 5)
    manager.clean()

    assert (out_of_service(world), offered(world)) == ([], {0, 1, 2, 3})
    assert not run_directory(world.data_dir, job_id, 1).path.exists()


@pytest.mark.long
def test_failed_job_does_not_restart_in_place_beside_what_it_left(impatient, manager):
    world = impatient
    job_id = world.start(training(steps=2000, pause=0.05), ranks=2)
    world.wait_for_line(job_id, "step 3")

    with unkillable(rank_of(world, job_id, 1)):
        processes.kill([rank_of(world, job_id, 0)])
        job = world.wait_for_end(job_id, 30)

        assert (job.state, job.attempt, job.retries_used) == (JobState.QUEUED, 1, 1), world.describe(job_id)
        assert world.attempt(job_id).cause == "RANK_KILLED"
        assert out_of_service(world) == [0, 1]
        # It is tried again on this very node, and what it left behind there is still known.
        world.dispatch(job_id, ranks=2, first_device=2)
        manager.poll()
        world.wait(lambda: world.attempt_trains(job_id, 2), 20, job_id)
        assert run_directory(world.data_dir, job_id, 1).path.exists()
        world.request(job_id, "cancel")
        world.wait_for_end(job_id)
        assert out_of_service(world) == [0, 1]


@pytest.mark.long
def test_node_takes_over_from_a_supervisor_that_died_before_it_could_say(impatient, manager):
    world = impatient
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    rank, supervisor = rank_of(world, job_id), world.lease(job_id).supervisor_pid

    with unkillable(rank):
        processes.kill([supervisor])
        world.wait(lambda: not world.supervisor_alive(job_id, 1), 5)
        manager.poll()
        manager.poll()

        assert world.job(job_id).state is JobState.QUEUED, world.describe(job_id)
        assert (out_of_service(world), offered(world)) == ([0], {1, 2, 3})
        assert len(stuck_device_messages(world, job_id)) == 1
        began = time.monotonic()
        manager.clean()  # the first that meets it, and waits
        manager.clean()
        assert out_of_service(world) == [0]
        assert time.monotonic() - began < 10.0
    world.wait(lambda: processes.start_ticks(rank) is None, 5)
    manager.clean()

    assert out_of_service(world) == []


@pytest.mark.long
def test_what_is_lost_is_left_behind_at_once(make_world):
    world = make_world(TRAINYARD_WATCH_STUCK_SECONDS="600")
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    with unkillable(rank_of(world, job_id)):
        with world.db.write() as session:
            session.query(Lease).filter_by(job_id=job_id).one().fence += 1
        world.nudge(job_id)
        world.wait(lambda: not world.supervisor_alive(job_id, 1), 25, job_id)

        assert run_directory(world.data_dir, job_id, 1).path.exists(), "by it the node finds what was left"


WITH_A_THREAD = """
import threading, time
thread = threading.Thread(target=time.sleep, args=(300,), daemon=True)
thread.start()
print("thread", thread.native_id, flush=True)
time.sleep(120)
"""
# What a script starts with an environment of its own carries no mark of its attempt.
WITH_A_STRANGER = """
import subprocess
child = subprocess.Popen(["sleep", "300"], env={"PATH": "/usr/bin:/bin"})
print("stranger", flush=True)
child.wait()
"""


@pytest.mark.long
def test_thread_that_hangs_keeps_the_devices_although_the_main_thread_is_dead(confined_or_not):
    world, manager = confined_or_not
    job_id = world.start(WITH_A_THREAD)
    world.wait_for_line(job_id, "thread")
    rank = rank_of(world, job_id)
    (thread,) = [tid for tid in [int(each.name) for each in Path(f"/proc/{rank}/task").iterdir()] if tid != rank]

    with unkillable(thread):
        world.request(job_id, "cancel")
        world.wait_for_end(job_id, 30)
        assert processes.state_of(rank) == "Z"
        manager.clean()
        manager.clean()
        assert out_of_service(world) == [0]
    world.wait(lambda: processes.start_ticks(rank) is None, 5)
    manager.clean()

    assert out_of_service(world) == []


@pytest.mark.long
def test_process_without_the_marks_of_its_attempt_is_known_by_the_roll(confined_or_not):
    world, manager = confined_or_not
    job_id = world.start(WITH_A_STRANGER)
    world.wait_for_line(job_id, "stranger")
    (stranger,) = processes.descendants(rank_of(world, job_id))
    supervisor = world.lease(job_id).supervisor_pid
    run = run_directory(world.data_dir, job_id, 1)
    world.wait(lambda: f"[{stranger}," in run.roll.read_text(), 10, job_id)

    with unkillable(stranger):
        processes.kill([supervisor])
        world.wait(lambda: not world.supervisor_alive(job_id, 1), 5)
        manager.poll()
        manager.poll()
        manager.clean()
        assert world.job(job_id).state is JobState.QUEUED
        assert out_of_service(world) == [0]
    world.wait(lambda: processes.start_ticks(stranger) is None, 5)
    manager.clean()

    assert out_of_service(world) == []
    assert not run.path.exists()


@pytest.mark.long
def test_device_whose_lease_was_taken_away_too_early_is_not_used_by_another_job(world):
    """As when the coordinator is faster than the node's worker."""
    first = world.start(SLEEPS)
    world.wait_for_line(first, "ready")
    rank, lease = rank_of(world, first), world.lease(first)

    with unkillable(rank):
        processes.kill([lease.supervisor_pid])
        world.wait(lambda: not world.supervisor_alive(first, 1), 5)
        (live,) = leases.live(world.db)
        assert leases.revoke(world.db, live, cause="NODE_LOST", message="", actor="x", backoff=leases.NO_RETRY)
        second = world.submit(SLEEPS)
        attempt = world.dispatch(second)

        assert not world.start_supervisor(second, attempt)

        job = world.job(second)
        assert (job.state, job.retries_used) == (JobState.QUEUED, 0), world.describe(second)
        assert world.attempt(second).end_reason == "an unkillable process holds one of its devices"
        assert (out_of_service(world), offered(world)) == ([0], {1, 2, 3})


@pytest.mark.long
def test_job_that_shares_a_device_does_not_disturb_the_other_one(world):
    first, second = world.submit(SLEEPS), world.submit(SLEEPS)
    world.take_up(first, share=50)
    world.wait_for_line(first, "ready")
    rank = rank_of(world, first)

    world.take_up(second, share=50)
    world.wait_for_line(second, "ready")

    assert (out_of_service(world), offered(world)) == ([], {1, 2, 3}), "both are on the same device"
    assert rank_of(world, first) == rank
    for job_id in (first, second):
        world.request(job_id, "cancel")
        world.wait_for_end(job_id)


@pytest.mark.long
@pytest.mark.parametrize("has_a_roll", [True, False])
def test_what_is_left_without_a_roll_is_found_by_its_marks(world, has_a_roll):
    first = world.start(SLEEPS)
    world.wait_for_line(first, "ready")
    rank, run = rank_of(world, first), run_directory(world.data_dir, first, 1)
    with world.db.write() as session:
        lease = session.query(Lease).one()
    os.kill(lease.supervisor_pid, signal.SIGSTOP)
    (live,) = leases.live(world.db)
    assert leases.revoke(world.db, live, cause="NODE_LOST", message="", actor="x", backoff=leases.NO_RETRY)
    if not has_a_roll:
        run.roll.unlink()
    second = world.submit("print('hello')\n")

    world.take_up(second)

    assert processes.start_ticks(rank) is None, "it was ended before another one began on its device"
    assert out_of_service(world) == []
    assert stuck_device_messages(world, first) == []
    assert world.wait_for_end(second).state is JobState.COMPLETED


@pytest.mark.long
def test_late_message_disturbs_no_running_job(world):
    first = world.start("print('hello')\n")
    assert world.wait_for_end(first).state is JobState.COMPLETED
    second = world.start(SLEEPS)  # on the same device
    world.wait_for_line(second, "ready")
    rank = rank_of(world, second)

    assert not world.start_supervisor(first, 1)
    assert not world.start_supervisor(second, 1)

    assert processes.start_ticks(rank) is not None
    assert world.job(second).attempt == 1
    world.request(second, "cancel")
    world.wait_for_end(second)


@pytest.mark.long
def test_process_that_only_dies_slowly_is_no_news(world):
    """It may free hundreds of gigabytes."""
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    manager = AttemptManager(world.settings, world.db, NODE)
    held_for = threading.Timer(2.7, lambda: None)
    with unkillable(rank_of(world, job_id)) as let_go:
        processes.kill([world.lease(job_id).supervisor_pid])
        world.wait(lambda: not world.supervisor_alive(job_id, 1), 5)
        held_for.function = let_go
        held_for.start()
        manager.poll()
        manager.poll()
    held_for.join()

    assert world.job(job_id).state is JobState.QUEUED
    assert (out_of_service(world), stuck_device_messages(world, job_id)) == ([], [])
