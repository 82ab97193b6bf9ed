"""Trials that are to continue after a halt, but halt a second time there, or find a full queue."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job, Queue
from app.models.queue import DEFAULT_QUEUE
from tests.builders.sweep_runs import SweepRun, constant

Make = Callable[..., SweepRun]
ASHA = {"name": "asha", "min": 3, "max": 27, "losers": "pause"}
MEDIAN = {**ASHA, "name": "median", "startup_trials": 5}
FREE_PLACES = {"max_trials": 9, "parallel_trials": "free"}


def set_job(run: SweepRun, number: int, **columns: Any) -> None:
    with run.db.write() as session:
        job = session.get_one(Job, run.job(number).id)
        for name, value in columns.items():
            setattr(job, name, value)


def limit_queue(run: SweepRun, most: int | None) -> None:
    with run.db.write() as session:
        session.get_one(Queue, DEFAULT_QUEUE).max_waiting_jobs = most


def continued(make_run: Make, *, trained_to: int) -> SweepRun:
    """A sweep whose trial 0 continues after its halt at step 3; its newest value is that of ``trained_to``."""
    run = make_run(early_stopping=MEDIAN, budget={"max_trials": 1, "parallel_trials": 1})
    run.step()
    run.train(0, to=trained_to, curve=constant(0.5))
    set_job(run, 0, current_step=3)
    run.end(0, JobState.PAUSED, status_reason="halted at step 3")
    run.step()
    assert (run.trials()[0].step, run.job(0).status) == (trained_to, "QUEUED")
    return run


def full_queue(make_run: Make) -> SweepRun:
    """The queue takes no job when trial 0 of a sweep continues after its halt."""
    run = make_run(early_stopping=MEDIAN, budget=FREE_PLACES)
    run.step()
    run.halt(0, at=3, curve=constant(0.5))
    limit_queue(run, 0)
    run.step()
    return run


@pytest.mark.both_databases
@pytest.mark.parametrize("trained_to", [2, 3], ids=["measured before it", "measured there"])
def test_a_trial_that_halts_again_continues(make_run: Make, trained_to: int) -> None:
    run = continued(make_run, trained_to=trained_to)
    run.end(0, JobState.PAUSED, status_reason="halted at step 3")
    run.step()

    assert (run.job(0).status, len(run.reports())) == ("QUEUED", 1)


def test_a_trial_that_a_person_pauses_there_stays(make_run: Make) -> None:
    run = continued(make_run, trained_to=2)
    run.end(0, JobState.PAUSED, status_reason="paused")
    run.step()

    assert run.job(0).status == "PAUSED"


def test_a_trial_at_its_next_halt_reports_before_it_continues(make_run: Make) -> None:
    run = continued(make_run, trained_to=3)
    run.halt(0, at=9, curve=constant(0.5))
    run.step()

    assert (run.job(0).status, [report.rung for report in run.reports()]) == ("QUEUED", [3, 9])


@pytest.mark.both_databases
def test_the_reason_why_a_trial_waits_is_a_change_and_goes_with_it(make_run: Make) -> None:
    run = full_queue(make_run)
    waits = run.sweep()
    assert (run.trials()[0].paused, run.job(0).status) == (True, "PAUSED")
    assert waits.pending_reason.startswith("trial 0 stays paused: the queue ")
    run.step()
    assert (run.sweep().pending_reason, run.sweep().version) == (waits.pending_reason, waits.version)

    limit_queue(run, None)
    run.step()
    assert (run.sweep().pending_reason, run.job(0).status) == ("", "QUEUED")
    assert run.sweep().version > waits.version


def test_the_reason_goes_when_its_trial_has_ended(make_run: Make) -> None:
    run = full_queue(make_run)
    run.end(0, JobState.CANCELLED)
    limit_queue(run, None)
    run.step()

    assert (run.states()[0], run.sweep().pending_reason) == ("CANCELLED", "")


@pytest.mark.both_databases
def test_no_further_trial_is_decided_while_one_waits_for_the_queue(make_run: Make) -> None:
    run = make_run(early_stopping=ASHA, budget={"max_trials": 6, "parallel_trials": 6})
    for number in range(6):
        run.step()
        run.train(number, to=1)
    for number in range(6):
        run.halt(number, at=3, curve=constant(0.1 * (number + 1)))
    limit_queue(run, 0)
    run.step()
    run.step()

    # 2 of 6 have earned it; the second one is decided about when the first one is in the queue.
    assert [trial.number for trial in run.trials() if trial.paused] == [0]
    limit_queue(run, None)
    run.step()
    assert ([trial.paused for trial in run.trials()], run.job(0).status) == ([False] * 6, "QUEUED")
    run.train(0, to=4)
    run.step()
    assert run.job(1).status == "QUEUED"
