"""A job's state and attempts in ModelArts' words: phases, tasks, records, durations."""

import dataclasses
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from app.compat.modelarts.from_native import job_of
from app.compat.modelarts.status import (
    STATES,
    STATES_OF_PHASES,
    UncontrolledJobs,
    node_counts,
    phase_of,
    status_of,
    tasks_of,
)
from app.domain.lifecycle.states import RUNNING, JobState
from app.models import Attempt
from app.services.jobs.details import JobDetails
from tests.unit.compat.test_modelarts import ALGORITHM, CLUSTER, details_of, translated

START = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = 1_767_225_600


def job(*, nodes: int = 1, devices: int = 1, state: JobState = JobState.TRAINING, **columns: Any) -> JobDetails:
    spec = {"resource": {"flavor_id": f"trainyard.nvidia-a100.{devices}", "node_count": nodes}}
    return details_of(translated(ALGORITHM, spec=spec), state=state, **columns)


def attempt(number: int, begin: int, end: int | None, **columns: Any) -> Attempt:
    values = {
        "node_names": ["n1", "n2"],
        "created_at": START + timedelta(seconds=begin),
        "started_at": START + timedelta(seconds=begin + 1),
        "start_type": "init_or_rescheduled",
        "ended_at": None if end is None else START + timedelta(seconds=end),
        **columns,
    }
    return Attempt(number=number, **values)


def status_at(details: JobDetails, *attempts: Attempt, seconds: int = 100) -> dict[str, Any]:
    return status_of(details, attempts, now=START + timedelta(seconds=seconds))


def test_every_state_is_one_of_modelarts():
    assert set(STATES) == set(JobState)


@pytest.mark.parametrize(
    ("state", "columns", "phases"),
    [
        (JobState.FAILED, {"error_type": "NODE_LOST"}, ("Abnormal", "Lost")),
        (JobState.FAILED, {"error_type": "INVALID_CONFIG"}, ("Failed", "Failed")),
        (JobState.FAILED, {"error_type": "INVALID_CONFIG", "attempt": 0}, ("Abnormal", "CreateFailed")),
        (JobState.CANCELLED, {}, ("Terminated", "Terminated")),
    ],
)
def test_phase_of_an_ended_job_depends_on_what_ended_it(state, columns, phases):
    assert phase_of(job(state=state, **columns)) == phases


def test_job_out_of_the_platforms_control_is_reported_as_such():
    running, stopped = job(), job(state=JobState.CANCELLED)
    trouble = UncontrolledJobs(unheard=frozenset({running.job.id}), unstoppable=frozenset({stopped.job.id}))

    assert phase_of(running, trouble) == ("Running", "Unknown")
    assert phase_of(stopped, trouble) == ("Abnormal", "TerminatedFailed")
    assert phase_of(job(), trouble) == ("Running", "Running")


def test_job_that_is_asked_to_end_is_terminating():
    assert phase_of(dataclasses.replace(job(), requested="cancel")) == ("Terminating", "Terminating")


@pytest.mark.parametrize("state", JobState)
def test_phase_is_looked_for_where_it_may_be(state):
    for case in product((None, "NODE_LOST"), (None, "pause", "cancel"), (0, 1), (False, True)):
        error, requested, attempts, is_in_trouble = case
        found = dataclasses.replace(job(state=state, error_type=error, attempt=attempts), requested=requested)
        ids = frozenset({found.job.id} if is_in_trouble else ())

        phase, secondary = phase_of(found, UncontrolledJobs(ids, ids))

        assert state in STATES_OF_PHASES[phase], case
        assert secondary != "Unknown" or state in RUNNING, case


def test_duration_is_what_the_records_add_up_to():
    status = status_at(
        job(nodes=2),
        attempt(
            1,
            0,
            60,
            end_reason="exit with 127",
            end_related_task="rank-1",
            policy="job_reschedule",
            recover_before_downgrade="proc_restart",
            exit_code=127,
        ),
        attempt(2, 90, None),
    )

    assert (status["start_time"], status["duration"]) == ((EPOCH + 1) * 1000, (59 + 9) * 1000)
    assert status["node_count_metrics"] == [[EPOCH * 1000, 2], [(EPOCH + 60) * 1000, 0], [(EPOCH + 90) * 1000, 2]]
    assert status["running_records"] == [
        {
            "start_at": EPOCH + 1,
            "end_at": EPOCH + 60,
            "start_type": "init_or_rescheduled",
            "end_reason": "exit with 127",
            "end_related_task": "worker-1",
            "end_recover": "job_reschedule",
            "end_recover_before_downgrade": "proc_restart",
        },
        {"start_at": EPOCH + 91, "start_type": "init_or_rescheduled"},
    ]


@pytest.mark.parametrize(
    ("related", "task"),
    [
        ("rank-0", "worker-0"),
        ("rank-1", "worker-1"),
        ("n2", "worker-1"),
        ("rank-7", "worker-1"),
        ("elsewhere", None),
        (None, None),
        ("rank-x", None),
    ],
)
def test_related_task_is_one_of_the_tasks(related, task):
    details = job(nodes=2)

    record = status_at(details, attempt(1, 0, 9, end_related_task=related))["running_records"][0]

    assert record.get("end_related_task") == task
    assert task is None or task in tasks_of(details)


def test_task_of_a_rank_is_its_node_among_ranks_of_every_device():
    details = job(nodes=2, devices=4)
    details.stored["training_config"]["framework"]["distributed"]["config"]["num_proc_per_node"] = "gpu"

    records = status_at(details, *(attempt(1, 0, 9, end_related_task=f"rank-{rank}") for rank in (3, 4)))[
        "running_records"
    ]

    assert [each["end_related_task"] for each in records] == ["worker-0", "worker-1"]


def test_every_task_has_a_status():
    failed = job(nodes=2, state=JobState.FAILED, error_type="SCRIPT_ERROR", error_message="boom")
    done = job(nodes=2, state=JobState.COMPLETED)

    after_failure = status_at(failed, attempt(1, 0, 9, exit_code=3, end_related_task="rank-1"))["task_statuses"]
    after_success = status_at(done, attempt(1, 0, 9, exit_code=0, end_reason="completed"))["task_statuses"]

    assert after_failure == [
        {"task": "worker-0", "message": "stopped because worker-1 had ended"},
        {"task": "worker-1", "exit_code": 3, "message": "boom"},
    ]
    assert after_success == [
        {"task": task, "exit_code": 0, "message": "completed"} for task in ("worker-0", "worker-1")
    ]


def instances(*codes: int | None) -> list[dict[str, Any]]:
    """Of the roles trainer and rollout, which has all but the first."""
    places = [("trainer", 0), *(("rollout", index) for index in range(len(codes) - 1))]
    rows = zip(places, codes, strict=True)
    ended = [{"role": role, "index": index, "node": "n1", "exit_code": code} for (role, index), code in rows]
    return [{name: value for name, value in each.items() if value is not None} for each in ended]


def heterogeneous(state: JobState) -> JobDetails:
    """A job with the roles of `instances`."""
    tasks: list[dict[str, Any]] = [{"role": "trainer"}, {"role": "rollout", "task_resource": {"node_count": 2}}]
    code = {"code_dir": "obs://a/b/", "boot_file": "obs://a/b/c.py"}
    return details_of(translated({}, tasks=[{**each, "algorithm": code} for each in tasks]), state=state)


def test_tasks_of_a_heterogeneous_job_have_exit_codes_of_their_own():
    failed, done = heterogeneous(JobState.FAILED), heterogeneous(JobState.COMPLETED)
    failed.job.error_message = "boom"

    of_failed = attempt(1, 0, 9, exit_code=3, end_related_task="rank-2", instances=instances(0, None, 3))
    of_done = attempt(1, 0, 9, exit_code=0, end_reason="completed", instances=instances(0, 143, 0))

    assert status_at(failed, of_failed)["task_statuses"] == [
        {"task": "trainer-0", "exit_code": 0, "message": "completed"},
        {"task": "rollout-0", "message": "stopped because rollout-1 had ended"},
        {"task": "rollout-1", "exit_code": 3, "message": "boom"},
    ]
    assert status_at(done, of_done)["task_statuses"] == [
        {"task": "trainer-0", "exit_code": 0, "message": "completed"},
        {"task": "rollout-0", "exit_code": 143, "message": "stopped when all tasks but sidecars had ended"},
        {"task": "rollout-1", "exit_code": 0, "message": "completed"},
    ]


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.PAUSED, JobState.PREEMPTED])
def test_tasks_of_a_heterogeneous_job_that_was_stopped_say_why(state):
    ended = attempt(1, 0, 9, end_reason="stopped by ada", instances=instances(143, 0, 143))

    messages = [each["message"] for each in status_at(heterogeneous(state), ended)["task_statuses"]]

    assert messages == ["stopped by ada", "completed", "stopped by ada"]


def test_task_that_is_blamed_for_a_failure_says_it_even_if_it_ended_well():
    failed = heterogeneous(JobState.FAILED)
    failed.job.error_message = "the node was lost"

    trainer, *others = status_at(failed, attempt(1, 0, 9, instances=instances(0, 0, None)))["task_statuses"]

    assert trainer == {"task": "trainer-0", "exit_code": 0, "message": "the node was lost"}
    assert [each["message"] for each in others] == ["completed", "stopped because trainer-0 had ended"]


def test_job_without_attempts_has_not_started():
    status = status_at(job())

    assert (status["start_time"], status["duration"], status["node_count_metrics"]) == (0, 0, None)
    assert "running_records" not in status
    assert node_counts([]) is None


def test_attempt_that_has_not_begun_is_no_record():
    status = status_at(job(), attempt(1, 0, None, started_at=None))

    assert (status["start_time"], status["duration"]) == (0, 0)
    assert "running_records" not in status


def test_details_have_the_flavor_and_the_algorithm_as_they_were_sent():
    found = job_of(job(nodes=2), [], CLUSTER)

    assert found["metadata"]["create_time"] == EPOCH * 1000
    resource = found["spec"]["resource"]
    assert (resource["flavor_id"], resource["node_count"]) == ("trainyard.nvidia-a100.1", 2)
    assert resource["flavor_detail"]["flavor_info"]["disk"] == {"size": "1000", "unit": "GB"}
    assert {name: found["algorithm"][name] for name in ALGORITHM} == ALGORITHM
