"""A supervisor that starts the job's next attempt in place: same process, same devices, fenced as before."""

import os
import signal
import subprocess
import sys
import time

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job, Reservation
from tests.systems.supervising import NODE, STUBBORN, World, environment, rows, training
from workers.node.attempt_manager import AttemptManager

pytestmark = pytest.mark.usefixtures("no_memory_kills")


def rank_pid(world: World, job_id: str, attempt: int = 1, rank: int = 0) -> int:
    mark = f"RANK={rank}".encode()
    (pid,) = [pid for pid in world.processes(job_id, attempt) if mark in environment(pid)]
    return pid


def killed_rank(world: World, script: str, line: str) -> str:
    """A job that trains in its second attempt, in place, because a rank of the first was killed."""
    job_id = world.start(script)
    world.wait_for_line(job_id, line)
    os.kill(rank_pid(world, job_id), signal.SIGKILL)
    world.wait(lambda: world.attempt_trains(job_id, 2), 20, job_id)
    return job_id


def test_killed_rank_is_restarted_by_the_same_supervisor(any_world):
    world = any_world
    job_id = world.start(training(steps=60, pause=0.1, save_at=(3,)), ranks=2)
    world.wait_for_line(job_id, "step 5")
    before = world.lease(job_id)
    reserved = {(r.device_index, r.node) for r in rows(world, Reservation)}

    os.kill(rank_pid(world, job_id, rank=1), signal.SIGKILL)
    world.wait(lambda: world.attempt_trains(job_id, 2), 20, job_id)

    after = world.lease(job_id)
    assert (after.supervisor_pid, after.supervisor_started) == (before.supervisor_pid, before.supervisor_started)
    assert (after.attempt, after.released_at) == (2, None)
    assert after.fence > before.fence
    assert {(r.device_index, r.node) for r in rows(world, Reservation)} == reserved
    assert world.processes(job_id, 1) == []
    job = world.wait_for_end(job_id, 40)
    assert job.state is JobState.COMPLETED, world.describe(job_id)
    first, second = world.attempt(job_id, 1), world.attempt(job_id, 2)
    assert (first.cause, first.policy, first.lost_steps) == ("RANK_KILLED", "proc_restart", first.end_step - 3)
    assert second.start_step == 3
    assert first.detect_seconds < 1.0
    log = world.log(job_id)
    assert log.count("step 1") == 2
    assert log.count("resumed at 3") == 2


def test_what_the_first_attempt_left_on_the_node_is_gone(world):
    job_id = killed_rank(world, training(steps=2000, pause=0.05, save_at=(3,)), "step 5")

    directory = world.data_dir / "run" / "jobs" / job_id
    world.wait(lambda: sorted(path.name for path in directory.iterdir()) == ["2", "2.taken"], 5, job_id)

    world.request(job_id, "cancel")
    world.wait_for_end(job_id)
    assert not directory.exists()


def test_lease_is_renewed_over_the_restart_and_the_node_worker_knows_the_supervisor(world):
    job_id = world.start(training(steps=2000, pause=0.05, save_at=(3,)))
    world.wait_for_line(job_id, "step 5")
    os.kill(rank_pid(world, job_id), signal.SIGKILL)

    longest, counter, since = 0.0, 0, time.monotonic()
    while not (world.attempt_trains(job_id, 2) and world.lease(job_id).counter > counter + 2):
        if world.lease(job_id).counter != counter and not world.attempt_trains(job_id, 2):
            counter, since = world.lease(job_id).counter, time.monotonic()
        longest = max(longest, time.monotonic() - since)
        assert longest < world.settings.lease.ttl_seconds / 2, world.describe(job_id)
        time.sleep(0.02)
    manager = AttemptManager(world.settings, world.db, NODE)  # of a worker that was started anew
    for _ in range(4):
        manager.poll()

    assert world.lease(job_id).released_at is None
    manager.nudge(job_id)
    with world.db.write() as session:
        session.get_one(Job, job_id).requested = "cancel"
    manager.poll()
    assert world.wait_for_end(job_id, 5).state is JobState.CANCELLED


def test_supervisor_of_the_second_attempt_is_fenced_too(make_world):
    world = make_world(
        TRAINYARD_LEASE_RENEW_SECONDS="0.3", TRAINYARD_LEASE_FENCE_SECONDS="1.5", TRAINYARD_LEASE_TTL_SECONDS="6"
    )
    job_id = killed_rank(world, STUBBORN, "ready")
    assert world.processes(job_id, 2)
    began = time.monotonic()

    os.kill(world.lease(job_id).supervisor_pid, signal.SIGSTOP)
    world.wait(lambda: not world.supervisor_alive(job_id, 2) and not world.processes(job_id, 2), 6)

    assert time.monotonic() - began < 2.5


def test_checkpoint_requested_during_the_restart_is_made_and_sigterm_puts_the_job_back(world):
    job_id = world.start(training(steps=2000, pause=0.05))
    world.wait_for_line(job_id, "step 3")
    os.kill(rank_pid(world, job_id), signal.SIGKILL)
    world.wait(lambda: world.job(job_id).attempt == 2, 20, job_id)

    with world.db.write() as session:
        session.get_one(Job, job_id).checkpoint_requests += 1  # without a nudge: the supervisor is restarting
    world.wait(lambda: bool(rows(world, Checkpoint)), 20, job_id)

    assert [made.attempt for made in rows(world, Checkpoint)] == [2]
    assert world.supervisor_alive(job_id, 2)
    os.kill(world.lease(job_id).supervisor_pid, signal.SIGTERM)
    assert world.wait_for_end(job_id).state is JobState.QUEUED


BECOMES = """
import sys
from workers.node import spawn_supervisor
then = (
    "import os, signal, sys; "
    "print(*sys.argv[1:], os.getpid(), sorted(signal.sigpending()), signal.getsignal(signal.SIGUSR1).name)"
)
spawn_supervisor.supervisor_command = lambda job, attempt: [sys.executable, "-c", then]
spawn_supervisor.become_supervisor("job-1", 2, is_stopping=True, checkpoints_asked=3)
"""


def test_signals_wait_for_the_next_attempts_supervisor():
    process = subprocess.Popen([sys.executable, "-c", BECOMES], stdout=subprocess.PIPE, text=True)

    said, _ = process.communicate(timeout=20)

    assert said.split() == ["--checkpoints-asked", "3", str(process.pid), "[<Signals.SIGTERM:", "15>]", "SIG_IGN"]
