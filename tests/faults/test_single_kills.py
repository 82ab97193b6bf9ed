"""One process at a time is killed while a job trains: the job still ends COMPLETED, once, and loses few steps."""

import signal

import pytest

from tests.faults.completed_once import STEPS, assert_completed_once, last_checkpoint_before_attempt
from tests.systems.system import System, wait_for

pytestmark = pytest.mark.long


@pytest.mark.parametrize("part", ["coordinator", "api", "node-n1"])
def test_a_killed_process_of_ours_disturbs_no_training(training: tuple[System, str], part: str) -> None:
    system, job_id = training

    system.kill(part)
    {"coordinator": system.start_coordinator, "api": system.start_api, "node-n1": lambda: system.start_node("n1")}[
        part
    ]()

    said = assert_completed_once(system, job_id)
    assert [step for step, _ in said] == list(range(1, STEPS + 1)), "steps were trained again"


@pytest.mark.usefixtures("no_memory_kills")
def test_a_killed_rank_is_started_again_from_the_last_checkpoint(training: tuple[System, str]) -> None:
    system, job_id = training

    system.ranks_of(job_id)[0].kill()

    said = assert_completed_once(system, job_id)
    first, second = system.get(f"/v1/jobs/{job_id}/attempts")["attempts"]
    assert [first["cause"], second["cause"]] == ["RANK_KILLED", None]
    assert second["start_step"] == last_checkpoint_before_attempt(system, job_id, 2), "it went on from a checkpoint"
    assert second["end_step"] == STEPS
    # All ten when the kill comes between a step that is saved and its checkpoint.
    assert first["lost_steps"] == first["end_step"] - second["start_step"] <= 10
    trained_again = [step for step, _ in said][second["start_step"] - STEPS :]
    assert trained_again == list(range(second["start_step"] + 1, STEPS + 1))


def test_a_killed_supervisor_takes_its_ranks_along_and_is_replaced(training: tuple[System, str]) -> None:
    system, job_id = training
    ranks = system.ranks_of(job_id)

    system.supervisor_of(job_id).kill()

    wait_for(lambda: not any(r.is_running() for r in ranks), seconds=5, what="ranks gone")
    assert_completed_once(system, job_id)


def test_a_restarted_node_worker_adopts_its_supervisor(training: tuple[System, str]) -> None:
    system, job_id = training
    supervisor = system.supervisor_of(job_id).pid

    system.kill("node-n1", signal.SIGTERM)
    system.start_node("n1")
    system.wait_for_step(job_id, 30)

    assert system.supervisor_of(job_id).pid == supervisor
    assert_completed_once(system, job_id)
