"""A supervisor that starts the job's next attempt in place: same process, same devices, fenced as before."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.host import processes
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


@pytest.mark.long
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


@pytest.mark.long
def test_what_the_first_attempt_left_on_the_node_is_gone(world):
    job_id = killed_rank(world, training(steps=2000, pause=0.05, save_at=(3,)), "step 5")

    directory = world.data_dir / "run" / "jobs" / job_id
    world.wait(lambda: sorted(path.name for path in directory.iterdir()) == ["2", "2.taken"], 5, job_id)

    world.request(job_id, "cancel")
    world.wait_for_end(job_id)
    assert not directory.exists()


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


def program_of(pid: int) -> str:
    """The addresses at which its program was loaded: others after each exec."""
    return Path(f"/proc/{pid}/maps").read_text().partition(" ")[0]


def held_by(pid: int) -> tuple[list[str], list[str], int]:
    """(kinds of its open files, names of its threads, timers of the kernel)"""
    process = Path(f"/proc/{pid}")
    files = sorted(str(each.readlink()).partition(":")[0] for each in (process / "fd").iterdir())
    threads = sorted((each / "comm").read_text().strip() for each in (process / "task").iterdir())
    return files, threads, (process / "timers").read_text().count("ID:")


@pytest.mark.long
def test_the_program_keeps_program_with_nothing_of_the_attempts_before(world):
    job_id = world.start(training(steps=2000, pause=0.05))
    world.wait_for_line(job_id, "step 3")
    pid = world.lease(job_id).supervisor_pid
    program, held = program_of(pid), held_by(pid)

    for attempt in (1, 2):
        os.kill(rank_pid(world, job_id, attempt), signal.SIGKILL)
        world.wait(lambda number=attempt + 1: world.log(job_id).count("step 3") == number, 20, job_id)
        assert processes.supervisors_of(job_id, attempt) == []
        assert processes.supervisors_of(job_id, attempt + 1) == [pid]

    assert program_of(pid) == program
    world.wait(lambda: len(held_by(pid)[0]) == len(held[0]) and held_by(pid)[1:] == held[1:], 10, job_id)


# The supervisor of the next attempt, if the program continues; of another program otherwise.
PRELUDE = """
import os, signal, sys, threading
from app.host.processes import supervisors_of
from workers.fork_server import requests
from workers.supervisor import next_attempt
from workers.supervisor.next_attempt import ToRun, keeps_program, start_anew
program = (
    "import os, signal, sys; "
    "print('anew', *sys.argv[1:], os.getpid(), *signal.sigpending(), signal.getsignal(signal.SIGUSR1).name)"
)
following = ToRun("job-1", 2, 3)
"""
FINALE = """
if keeps_program(following):
    print("continues", supervisors_of("job-1", 2) == [os.getpid()])
else:
    next_attempt.supervisor_command = lambda job, attempt: [sys.executable, "-c", program]
    start_anew(following)
"""


def said_by(program: str) -> tuple[str, int]:
    """(output, pid) of a process that runs this beside our code."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=20)
    return output.strip(), process.pid


@pytest.mark.long
def test_program_that_keeps_program_is_found_by_the_command_of_the_next_attempt():
    assert said_by(PRELUDE + FINALE)[0] == "continues True"


THREAD = "threading.Thread(target=threading.Event().wait, name='stuck', daemon=True).start()\n"
UPGRADED = "requests._INSTALLED -= 1\n"
HELD = """
from workers.supervisor.control.stop_controller import StopController
stops = StopController(None, None, None, grace_seconds=1.0, withdraw=None)
stops.machine_stops = True
stops.hold_signals()
os.kill(os.getpid(), signal.SIGUSR1)
"""


@pytest.mark.long
@pytest.mark.parametrize("obstacle", [THREAD, UPGRADED], ids=["a thread that hangs", "code that was replaced"])
def test_program_with_an_obstacle_starts_anew_and_signals_wait_for_it(obstacle):
    said, pid = said_by(PRELUDE + HELD + obstacle + FINALE)

    assert said == f"anew --checkpoints-asked 3 {pid} 15 SIG_IGN"


LISTENS = """
class Loop:
    def call(self, callback):
        print(callback.__name__)
following = StopController(Loop(), None, None, grace_seconds=1.0, withdraw=None)
def nudge(): ...
following.listen_to_signals(nudge)
os.kill(os.getpid(), signal.SIGUSR1)
print(following.machine_stops)
"""


@pytest.mark.long
def test_signals_wait_for_the_next_attempt_of_a_program_that_keeps_program():
    said, _ = said_by(PRELUDE + HELD + LISTENS)

    assert said.split() == ["_stop_now", "nudge", "True"]
