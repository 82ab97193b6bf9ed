"""The checker itself: a sound history passes, and each invariant finds the violation planted for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.models import AuditEntry, Lease, Reservation
from tests.faults.handmade_histories import JOB, event, good_history, stored_checkpoint, stretch
from tests.faults.history import History
from tests.faults.invariants import INVARIANTS, violations

Plant = Callable[[History], History]


def changed(history: History, **parts: Any) -> History:
    """The same with other parts of its one job."""
    return replace(history, jobs={JOB: replace(history.jobs[JOB], **parts)})


def with_columns(history: History, number: int, **columns: Any) -> History:
    for name, value in columns.items():
        setattr(history.jobs[JOB].attempts[number - 1], name, value)
    return history


def a_forgotten_job(history: History) -> History:
    return replace(history, accepted=[JOB, "job-2"])


def an_internal_error(history: History) -> History:
    return replace(history, server_errors=[("/v1/jobs", 500)])


def an_unfinished_job(history: History) -> History:
    history.jobs[JOB].job.status = "QUEUED"
    return changed(history, events=history.jobs[JOB].events[:-1], audit=history.jobs[JOB].audit[:-1])


def a_second_end(history: History) -> History:
    one = history.jobs[JOB]
    history.jobs[JOB].job.status = "FAILED"
    again = event(13, "job.status", "FAILED", before="COMPLETED")
    return changed(history, events=[*one.events, again], audit=[*one.audit, _audit_of("COMPLETED", "FAILED")])


def two_attempts_at_a_time(history: History) -> History:
    return changed(history, stretches=[stretch(1, start=0, last=13, began=0), stretch(2, start=10, last=20, began=12)])


def two_processes_of_one_rank(history: History) -> History:
    more = stretch(2, start=10, last=20, began=40)
    return changed(history, stretches=[*history.jobs[JOB].stretches, more])


def an_unrecorded_attempt(history: History) -> History:
    more = stretch(3, start=20, last=21, began=40)
    return changed(history, stretches=[*history.jobs[JOB].stretches, more])


def a_falling_token(history: History) -> History:
    return with_columns(history, 2, fence=1)


def a_stale_metric(history: History) -> History:
    history.jobs[JOB].metrics[-1].attempt = 1
    return history


def a_stale_checkpoint(history: History) -> History:
    history.jobs[JOB].checkpoints[1].attempt = 1
    return history


def a_start_from_nothing(history: History) -> History:
    attempts = [stretch(1, start=0, last=13, began=0), stretch(2, start=0, last=20, began=15)]
    return changed(with_columns(history, 1, lost_steps=13), stretches=attempts)


def a_wrongly_recorded_start(history: History) -> History:
    return with_columns(history, 2, start_step=5)


def hidden_lost_steps(history: History) -> History:
    # The witness saw the last of them long before the end.
    attempts = [stretch(1, start=0, last=18, began=0), stretch(2, start=10, last=20, began=20)]
    return changed(with_columns(history, 1, lost_steps=2), stretches=attempts)


def a_missing_metric(history: History) -> History:
    return changed(history, metrics=[m for m in history.jobs[JOB].metrics if m.step != 7])


def a_wrong_metric(history: History) -> History:
    history.jobs[JOB].metrics[3].value = 7.0
    return history


def a_doubled_arrival_number(history: History) -> History:
    history.jobs[JOB].metrics[4].seq = 4
    return history


def a_lost_log_line(history: History) -> History:
    return changed(history, logs=[line for line in history.jobs[JOB].logs if line != (1, "step 4")])


def devices_still_reserved(history: History) -> History:
    return replace(history, reservations=[Reservation(node="n1", device_index=0, job_id=JOB, attempt=2)])


def a_lease_after_the_end(history: History) -> History:
    return replace(history, live_leases=[Lease(job_id=JOB, attempt=2)])


def a_process_left(history: History) -> History:
    return replace(history, processes=["python train.py"])


def a_run_directory_left(history: History) -> History:
    return replace(history, run_directories=[Path("/data/run/jobs/job-1/1")])


def a_mount_left(history: History) -> History:
    return replace(history, mounts=["/data/run/jobs/job-1/1/code"])


def an_unrecorded_checkpoint(history: History) -> History:
    return replace(history, stored={JOB: ["ckpt-1", "ckpt-2", "ckpt-3"]})


def a_flipped_bit(history: History) -> History:
    path = history.storage / "jobs" / JOB / "checkpoints" / "ckpt-2" / "state.json"
    path.write_bytes(path.read_bytes().replace(b"2", b"3", 1))
    return history


def a_missing_file(history: History) -> History:
    (history.storage / "jobs" / JOB / "checkpoints" / "ckpt-1" / "state.json").unlink()
    return history


def a_checkpoint_of_wrong_steps(history: History) -> History:
    wrong = stored_checkpoint(history.storage / "elsewhere", "ckpt-2", 2, 19)
    good = history.storage / "jobs" / JOB / "checkpoints" / "ckpt-2"
    state = (history.storage / "elsewhere" / "jobs" / JOB / "checkpoints" / wrong.id / "state.json").read_bytes()
    (good / "state.json").write_bytes(state)
    return history


def a_wrong_result(history: History) -> History:
    (history.storage / "jobs" / JOB / "artifacts" / "answer.json").write_text('{"digest": "another"}')
    return history


def a_gap_in_the_history(history: History) -> History:
    return changed(history, events=[e for e in history.jobs[JOB].events if e.seq != 6])


def an_unaudited_change(history: History) -> History:
    return changed(history, audit=history.jobs[JOB].audit[1:])


def an_unaudited_verb(history: History) -> History:
    return replace(history, verbs=[(JOB, "resume")])


def an_unexplained_recovery(history: History) -> History:
    return with_columns(history, 1, policy=None)


def an_unmeasured_detection(history: History) -> History:
    return with_columns(history, 1, detect_seconds=None)


def an_unmeasured_recovery(history: History) -> History:
    return with_columns(history, 2, recover_seconds=None)


def an_attempt_without_end(history: History) -> History:
    return with_columns(history, 2, ended_at=None)


PLANTS: dict[str, tuple[Plant, ...]] = {
    "I1": (a_forgotten_job, an_internal_error),
    "I2": (an_unfinished_job, a_second_end),
    "I3": (two_attempts_at_a_time, two_processes_of_one_rank, an_unrecorded_attempt),
    "I4": (a_falling_token, a_stale_metric, a_stale_checkpoint),
    "I5": (a_start_from_nothing, a_wrongly_recorded_start),
    "I6": (hidden_lost_steps,),
    "I7": (a_missing_metric, a_wrong_metric, a_doubled_arrival_number, a_lost_log_line),
    "I8": (devices_still_reserved, a_lease_after_the_end),
    "I9": (a_process_left, a_run_directory_left, a_mount_left, an_unrecorded_checkpoint),
    "I10": (a_flipped_bit, a_missing_file, a_checkpoint_of_wrong_steps, a_wrong_result),
    "I11": (a_gap_in_the_history, an_unaudited_change, an_unaudited_verb),
    "I12": (an_unexplained_recovery, an_unmeasured_detection, an_unmeasured_recovery, an_attempt_without_end),
}
CASES = [(name, plant) for name, plants in PLANTS.items() for plant in plants]


def _audit_of(before: str, after: str) -> AuditEntry:
    return AuditEntry(action="job.status", target=JOB, data={"from": before, "to": after})


def test_a_good_history_contradicts_nothing(tmp_path: Path) -> None:
    assert violations(good_history(tmp_path)) == []


@pytest.mark.parametrize(("name", "plant"), CASES, ids=[f"{name}-{plant.__name__}" for name, plant in CASES])
def test_an_invariant_sees_what_contradicts_it(tmp_path: Path, name: str, plant: Plant) -> None:
    found = violations(plant(good_history(tmp_path)))

    assert [what for what in found if what.startswith(f"{name}: ")]


@pytest.mark.parametrize(("shares", "is_fine"), [((50, 50), True), ((60, 41), False), ((100, 100), False)])
def test_two_jobs_may_share_a_device_but_not_have_more_than_the_whole(
    tmp_path: Path, shares: tuple[int, int], *, is_fine: bool
) -> None:
    history, other = good_history(tmp_path / "a"), good_history(tmp_path / "b")
    jobs = {JOB: history.jobs[JOB], "job-2": other.jobs[JOB]}
    for share, one in zip(shares, jobs.values(), strict=True):
        for attempt in one.attempts:
            attempt.device_share = share

    found = list(INVARIANTS["I3"](replace(history, jobs=jobs)))

    assert (found == []) is is_fine


def test_there_is_a_plant_for_each_invariant() -> None:
    assert PLANTS.keys() == INVARIANTS.keys()
