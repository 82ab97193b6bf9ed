"""Ranks that make no step any more: noticed, put on record with their stacks, killed, and started again."""

import os
import signal
import time

import pytest

from app.domain.lifecycle.states import JobState
from app.host import processes
from app.models import Lease
from app.services.attempts import artifacts
from tests.systems.supervising import World, environment, rows, training

pytestmark = pytest.mark.long

# The first attempt hangs after its checkpoint at step 3, the second one resumes from there.
HANGS_ONCE = training(steps=6, pause=0.1, save_at=(3,)).replace(
    "    stop = run.should_stop()",
    "    if step == 5 and not resumed:\n        sleep_forever()\n    stop = run.should_stop()",
)
HANGS_ONCE = HANGS_ONCE.replace("import time\n", "import time\ndef sleep_forever():\n    time.sleep(600)\n", 1)
WATCH = {"TRAINYARD_WATCH_STEP_SECONDS": "3", "TRAINYARD_WATCH_FIRST_STEP_SECONDS": "6"}


@pytest.fixture
def watched(make_world):
    return make_world(**WATCH)


def diagnosis(world: World, job_id: str) -> str:
    with world.db.read() as session:
        (found,) = artifacts.listed(session, job_id, artifacts.DIAGNOSTICS)
        assert artifacts.listed(session, job_id, artifacts.MODEL) == [
            each
            for each in artifacts.listed(session, job_id, artifacts.ALL)
            if each.path != found.path and not each.path.startswith("tensorboard/")
        ]
        with artifacts.opened(world.storage, found) as stream:
            data = stream.read()
    assert len(data) == found.size_bytes
    return data.decode()


def test_hang_is_put_on_record_and_the_job_goes_on(watched):
    job_id = watched.start(HANGS_ONCE)

    job = watched.wait_for_end(job_id, 60)

    assert job.state is JobState.COMPLETED, watched.describe(job_id)
    first, second = watched.attempt(job_id, 1), watched.attempt(job_id, 2)
    assert (first.cause, first.end_step, second.start_step) == ("HANG", 5, 3)
    assert "after step 5" in first.end_reason
    assert "diagnostics/stacks.000001.txt" in first.end_reason
    assert 3.0 <= first.detect_seconds < 10.0
    text = diagnosis(watched, job_id)
    assert "rank 0" in text
    assert "in sleep_forever" in text
    assert "state S (sleeping)" in text


def test_rank_that_was_stopped_hangs_and_shows_where_it_was(watched):
    job_id = watched.start(training(steps=2000, pause=0.1, save_at=(3,)))
    watched.wait_for_line(job_id, "step 5")
    (rank,) = [pid for pid in watched.processes(job_id) if b"RANK=0" in environment(pid)]

    os.kill(rank, signal.SIGSTOP)
    watched.wait(lambda: watched.job(job_id).attempt == 2, 30, job_id)

    first = watched.attempt(job_id, 1)
    assert first.cause == "HANG"
    assert "stopped by a signal (SIGSTOP): rank 0" in first.end_reason
    text = diagnosis(watched, job_id)
    assert "state T (stopped)" in text
    assert "train.py" in text
    assert processes.start_ticks(rank) is None
    watched.request(job_id, "cancel")
    watched.wait_for_end(job_id)


def test_stopped_rank_is_a_hang_although_the_others_go_on(watched):
    job_id = watched.start(training(steps=2000, pause=0.1), ranks=2)
    watched.wait_for_line(job_id, "step 5")
    (rank,) = [pid for pid in watched.processes(job_id) if b"RANK=1" in environment(pid)]

    os.kill(rank, signal.SIGSTOP)
    watched.wait(lambda: watched.job(job_id).attempt == 2, 30, job_id)

    assert watched.attempt(job_id, 1).cause == "HANG"
    text = diagnosis(watched, job_id)
    assert "==== rank 0" in text
    assert "==== rank 1" in text
    watched.request(job_id, "cancel")
    watched.wait_for_end(job_id)


def test_script_that_reports_no_steps_never_hangs(watched):
    job_id = watched.start("import time\nprint('ready', flush=True)\ntime.sleep(8)\n")

    job = watched.wait_for_end(job_id, 30)

    assert (job.state, job.attempt) == (JobState.COMPLETED, 1), watched.describe(job_id)


def test_announced_work_is_no_hang(watched):
    script = training(steps=3, pause=0.05).replace(
        "    stop = run.should_stop()",
        "    if step == 2:\n        with run.section('counting sheep'):\n            time.sleep(5)\n"
        "    stop = run.should_stop()",
    )
    job_id = watched.start(script)

    job = watched.wait_for_end(job_id, 30)

    assert (job.state, job.attempt) == (JobState.COMPLETED, 1), watched.describe(job_id)


def test_announced_work_has_a_limit_of_its_own(watched):
    script = "import time\nfrom trainyard import hooks\nrun = hooks.init()\nprint('ready', flush=True)\n"
    script += "with run.section('counting sheep', max_seconds=1):\n    time.sleep(600)\n"
    job_id = watched.start(script)

    watched.wait(lambda: watched.job(job_id).attempt == 2, 30, job_id)

    assert "in its section 'counting sheep'" in watched.attempt(job_id, 1).end_reason
    watched.request(job_id, "cancel")
    watched.wait_for_end(job_id)


def test_job_that_hangs_can_be_cancelled_before_it_is_noticed(watched):
    job_id = watched.start(
        HANGS_ONCE.replace("time.sleep(600)", "signal.pause()").replace("import time", "import time, signal", 1)
    )
    watched.wait_for_line(job_id, "step 5")

    began = time.monotonic()
    watched.request(job_id, "cancel")

    assert watched.wait_for_end(job_id).state is JobState.CANCELLED
    assert time.monotonic() - began < 5
    assert [lease.released_at is not None for lease in rows(watched, Lease)] == [True]
