"""What goes wrong under a supervisor: broken and hostile ranks, lost leases, dead and frozen supervisors."""

import os
import signal
import time

import pytest

from app.domain.lifecycle.states import JobState
from app.host import processes
from app.models import Artifact, Checkpoint, Job, Metric
from tests.systems.supervising import SLEEPS, STUBBORN, environment, rows, training


@pytest.mark.long
def test_script_error_fails_with_its_traceback(world):
    job_id = world.start("print('before')\nraise ValueError('the data is odd')\n")

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "SCRIPT_ERROR")
    assert "exit code 1" in job.error_message
    assert "ValueError: the data is odd" in job.error_stack
    assert world.attempt(job_id).end_related_task == "rank-0"


@pytest.mark.long
def test_error_reported_by_hooks_names_the_exception(world):
    job_id = world.start("from trainyard import hooks\nrun = hooks.init()\nraise ValueError('the data is odd')\n")

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "SCRIPT_ERROR")
    assert "the data is odd" in job.error_message
    assert "Traceback" in job.error_stack


@pytest.mark.long
@pytest.mark.usefixtures("no_memory_kills")
def test_killed_ranks_are_retried_in_place_then_elsewhere(world):
    job_id = world.start(SLEEPS, ranks=2)
    for attempt in (1, 2, 3):
        world.wait(lambda n=attempt: world.log(job_id).count("ready") == 2 * n, 20, job_id)
        (rank,) = [pid for pid in world.processes(job_id, attempt) if b"RANK=1" in environment(pid)]
        os.kill(rank, signal.SIGKILL)
    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.QUEUED, "RANK_KILLED"), world.describe(job_id)
    assert job.retries_used == 3
    assert [world.attempt(job_id, number).policy for number in (1, 2)] == ["proc_restart"] * 2
    assert all(world.processes(job_id, number) == [] for number in (1, 2, 3))


@pytest.mark.long
def test_exit_without_result_after_speaking_is_no_result(world):
    job_id = world.start("import os, time\nfrom trainyard import hooks\nhooks.init()\ntime.sleep(0.3)\nos._exit(0)\n")

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "NO_RESULT")


@pytest.mark.long
def test_lost_lease_kills_the_ranks_and_writes_nothing(world):
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        job.fence += 1

    world.nudge(job_id)
    world.wait(lambda: not world.supervisor_alive(job_id, 1), 5)

    assert world.processes(job_id) == []
    assert world.job(job_id).state is JobState.TRAINING
    assert world.attempt(job_id).ended_at is None


def test_killed_supervisor_takes_its_ranks_along(world):
    job_id = world.start(STUBBORN, ranks=2)
    world.wait_for_line(job_id, "ready")
    os.kill(world.lease(job_id).supervisor_pid, signal.SIGKILL)

    world.wait(lambda: world.processes(job_id) == [], 5)
    assert world.attempt(job_id).ended_at is None, "no supervisor is left that could end it: its lease has to run out"


@pytest.mark.long
def test_every_renewal_says_how_long_the_attempt_has_run(make_world):
    world = make_world(TRAINYARD_LEASE_RENEW_SECONDS="0.3")
    began = time.monotonic()
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")

    first = world.lease(job_id).ran_seconds
    world.wait(lambda: world.lease(job_id).ran_seconds >= first + 0.3, 5, job_id)

    assert 0 < world.lease(job_id).ran_seconds <= time.monotonic() - began


@pytest.mark.long
def test_supervisor_that_cannot_renew_is_fenced_by_the_kernel(make_world):
    world = make_world(
        TRAINYARD_LEASE_RENEW_SECONDS="0.3", TRAINYARD_LEASE_FENCE_SECONDS="1.5", TRAINYARD_LEASE_TTL_SECONDS="6"
    )
    job_id = world.start(SLEEPS)
    world.wait_for_line(job_id, "ready")
    began = time.monotonic()

    processes.kill([world.lease(job_id).supervisor_pid, *world.processes(job_id)], signal.SIGSTOP)
    world.wait(lambda: not world.supervisor_alive(job_id, 1) and not world.processes(job_id), 5)

    assert time.monotonic() - began < 2.5


@pytest.mark.long
def test_training_goes_on_while_the_database_is_locked(world):
    job_id = world.start(training(steps=30, pause=0.05))
    world.wait_for_line(job_id, "step 2")

    with world.db.write():
        time.sleep(1.5)  # longer than a renewal and the next metrics wait

    job = world.wait_for_end(job_id)
    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert len(rows(world, Metric, name="loss")) == 30


@pytest.mark.long
def test_plain_process_group_leaves_no_daemon_behind(bare_world):
    daemon = "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() > 0: os._exit(0)\n"
    job_id = bare_world.start(daemon + STUBBORN)
    bare_world.wait_for_line(job_id, "ready")

    bare_world.request(job_id, "cancel")
    job = bare_world.wait_for_end(job_id)

    assert job.state is JobState.CANCELLED
    assert bare_world.processes(job_id) == []


@pytest.mark.long
def test_killed_supervisor_takes_a_plain_process_group_along(bare_world):
    job_id = bare_world.start(STUBBORN, ranks=2)
    bare_world.wait_for_line(job_id, "ready")

    os.kill(bare_world.lease(job_id).supervisor_pid, signal.SIGKILL)

    bare_world.wait(lambda: bare_world.processes(job_id) == [], 5)
    assert bare_world.attempt(job_id).ended_at is None, (
        "no supervisor is left that could end it: its lease has to run out"
    )


HOSTILE = """
import json, os, socket, sys, time
s = socket.socket(socket.AF_UNIX); fd = os.open(os.environ["TRAINYARD_RUN_DIR"], os.O_RDONLY)
s.connect(f"/proc/self/fd/{fd}/channel")
def say(**m): s.sendall(json.dumps(m).encode() + b"\\n")
run = os.environ["TRAINYARD_RUN_DIR"]
s.sendall(b"garbage\\n" + b"[" * 50000 + b"\\n")
say(type="hello", rank=0, can_checkpoint=True)
say(type="phase", phase="COMPLETED")
say(type="progress", step=-5)
say(type="checkpoint", step=1, path="/etc", metrics={})
say(type="checkpoint", step=1, path=run + "/checkpoints/../work", metrics={})
os.symlink("/etc", run + "/checkpoints/link")
say(type="checkpoint", step=1, path=run + "/checkpoints/link", metrics={})
os.mkdir(run + "/checkpoints/fifo"); os.mkfifo(run + "/checkpoints/fifo/manifest.json")
say(type="checkpoint", step=1, path=run + "/checkpoints/fifo", metrics={})
os.mkdir(run + "/checkpoints/odd"); open(run + "/checkpoints/odd/manifest.json", "w").write("[" * 100000)
say(type="checkpoint", step=1, path=run + "/checkpoints/odd", metrics={})
open(run + "/output/model.bin", "w").write("weights")
time.sleep(1)
END
"""


@pytest.mark.long
def test_hostile_rank_stores_nothing_and_ends_alone(world):
    job_id = world.start(HOSTILE.replace("END", 'say(type="result", stopped=None, step=1, weight_files=["model.bin"])'))

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert rows(world, Checkpoint) == []
    assert [e.type for e in world.events(job_id)].count("checkpoint.failed") == 5


@pytest.mark.long
@pytest.mark.parametrize(
    "end",
    [
        'os.symlink("/etc/passwd", run + "/output/passwd"); say(type="result", stopped=None, step=1)',
        'say(type="result", stopped=None, step=1, weight_files=["../spec.json"])',
        'os.mkfifo(run + "/output/pipe"); say(type="result", stopped=None, step=1)',
    ],
    ids=["link out", "file outside", "pipe"],
)
def test_output_that_leads_out_of_the_run_is_not_exported(world, end):
    job_id = world.start(HOSTILE.replace("time.sleep(1)", "").replace("END", end))

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), world.describe(job_id)
    assert rows(world, Artifact) == []
