"""Redis or a machine is lost while a job trains: the job still ends COMPLETED, once, and others are taken on."""

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.faults.completed_once import STEPS, assert_completed_once, begun_training, last_checkpoint_before_attempt
from tests.systems.installations import counting_job, steps_said
from tests.systems.system import System, wait_for

pytestmark = pytest.mark.long


def test_redis_killed_and_back_with_nothing_in_it(training: tuple[System, str]) -> None:
    system, job_id = training

    system.redis.stop(signal.SIGKILL)
    system.redis.start()

    assert_completed_once(system, job_id)
    second = system.submit(counting_job(steps=STEPS, step_seconds=0.0))
    assert_completed_once(system, second)


def test_jobs_survive_flushall(training: tuple[System, str]) -> None:
    system, job_id = training
    waiting = system.submit(counting_job(steps=STEPS, step_seconds=0.0, ranks=2))

    with system.redis.client() as client:
        client.flushall()

    assert_completed_once(system, job_id)
    assert_completed_once(system, waiting)


def test_redis_stopped_for_good(make_system: Callable[..., System]) -> None:
    system = make_system().start("n1")
    job_id = begun_training(system)

    system.redis.stop(signal.SIGKILL)

    assert_completed_once(system, job_id)
    second = system.submit(counting_job(steps=STEPS, step_seconds=0.0))
    assert_completed_once(system, second)
    third = system.submit(counting_job(steps=5000, step_seconds=0.1))
    system.wait_for_step(third, 2)
    assert system.call("POST", f"/v1/jobs/{third}/cancel")[0] == 200
    system.wait_for_status(third, "CANCELLED", seconds=10)


def test_the_loss_of_a_machine_moves_the_job_to_another_node(make_system: Callable[..., System]) -> None:
    system = make_system().start("n1", "n2")
    job_id = system.submit(counting_job(steps=STEPS, step_seconds=0.1))
    job = system.wait_for_step(job_id, 25)
    home = job["node_names"][0]
    supervisor = system.supervisor_of(job_id)

    system.kill(f"node-{home}")
    supervisor.kill()
    lost_at, lost_on = time.monotonic(), datetime.now(UTC)

    moved = wait_for(
        lambda: [s for s in steps_said(system.log_lines(job_id)) if s[1] > lost_at * 1e9],
        seconds=40,
        what="training on the other node",
    )
    assert moved[0][1] / 1e9 - lost_at < 20 + 3, "20 s and the script's own start"
    assert_completed_once(system, job_id)
    # Not a number known beforehand: where the job had got is seen up to 2 s later.
    assert moved[0][0] == last_checkpoint_before_attempt(system, job_id, 2) + 1, "from the last checkpoint"
    assert moved[0][0] > 20
    attempts = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert [a["node_names"][0] == home for a in attempts] == [True, False]
    # The promise: taken up elsewhere within 20 s; what comes then is the script's own start.
    assert datetime.fromisoformat(attempts[1]["started_at"]) - lost_on < timedelta(seconds=20)
