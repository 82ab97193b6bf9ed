"""Forks that are also trained from the start: the weights must be the same, or no further trial is a fork."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, update

from app.domain.lifecycle.states import JobState
from app.models import ApiKey, Job, Queue, SweepEvent
from app.models.base import utc_now
from app.models.queue import DEFAULT_QUEUE
from app.services.sweeps import commands
from app.services.sweeps.trials import caller_of
from tests.builders.statements import statements
from tests.builders.sweep_runs import SweepRun, constant
from tests.integration.services.sweeps.test_trunks import LENGTHS, forks, job_of

Make = Callable[..., SweepRun]


@pytest.fixture
def run(make_run: Make) -> SweepRun:
    return branched(make_run)


def branched(make_run: Make, **changes: Any) -> SweepRun:
    """Of its three trials the first has saved where the others branch off; one fork is verified."""
    made = make_run(
        job=job_of(),
        parameters=LENGTHS,
        method={"name": "grid", "order": "natural"},
        budget={"parallel_trials": 3},
        verify_trunks=1,
        **changes,
    )
    made.step()
    made.train(0, to=13, curve=constant(1.0))
    made.save(0, 13)
    made.step()
    return made


def verifying(run: SweepRun) -> list[Job]:
    with run.db.read() as session:
        jobs = session.scalars(select(Job).where(Job.sweep_id == run.id).order_by(Job.id))
        return [job for job in jobs if "trainyard/verifies" in job.labels]


def end(run: SweepRun, job: Job, digest: str, state: JobState = JobState.COMPLETED) -> None:
    with run.db.write() as session:
        changes = {"status": state, "finished_at": utc_now(), "report": {"model_hash": digest}, "elapsed_seconds": 5.0}
        session.execute(update(Job).where(Job.id == job.id).values(**changes))


def complete(run: SweepRun, number: int, digest: str = "same") -> None:
    run.train(number, to=24, curve=constant(1.0))
    run.end(number, report={"model_hash": digest})
    run.step()


def reasons(run: SweepRun) -> list[str]:
    with run.db.read() as session:
        query = select(SweepEvent.reason).where(SweepEvent.sweep_id == run.id).order_by(SweepEvent.seq)
        return [reason for reason in session.scalars(query) if reason.startswith(("VERIFIES", "TRUNK"))]


@pytest.mark.both_databases
def test_fork_is_trained_from_the_start_before_the_sweep_ends(run: SweepRun) -> None:
    assert forks(run) == [(None, 0), (0, 13), (None, 0)]
    complete(run, 1)
    (job,) = verifying(run)

    document, fork = job.document, run.job(1).document
    assert document.training_config.resume_from_checkpoint is None
    assert document.training_config.hyperparameters == fork.training_config.hyperparameters
    assert (job.labels["trainyard/verifies"], job.sweep_id) == ("1", run.id)
    complete(run, 0)
    complete(run, 2)
    assert (run.sweep().status, len(verifying(run))) == ("FINISHING", 1)
    end(run, job, "same")
    run.step()

    trial = run.trials()[1]
    assert (run.sweep().status, run.sweep().trunks_refused) == ("COMPLETED", "")
    assert trial.note == f"weights: equal to those of {job.id}, which trained from the start"
    assert trial.device_seconds >= 5.0
    assert reasons(run) == ["VERIFIES", "TRUNK_VERIFIED"]


def test_other_weights_end_the_sharing(run: SweepRun) -> None:
    complete(run, 1, "mine")
    (job,) = verifying(run)
    end(run, job, "other")
    run.step()

    assert f"weights of trial 1, a fork of trial 0: not those of {job.id}" in run.sweep().trunks_refused
    assert reasons(run) == ["VERIFIES", "TRUNK_DIFFERS"]


def test_verification_that_fails_proves_nothing(run: SweepRun) -> None:
    complete(run, 1)
    end(run, verifying(run)[0], "", JobState.FAILED)
    run.step()

    assert run.trials()[1].note.startswith("weights: not compared")
    assert (run.sweep().trunks_refused, reasons(run)[-1]) == ("", "TRUNK_NOT_VERIFIED")
    assert len(verifying(run)) == 1


def test_cancelled_sweep_cancels_its_verification(run: SweepRun) -> None:
    complete(run, 1)
    (job,) = verifying(run)
    with statements(run.db, of_writers=True) as sent:
        commands.cancel(run.plane, caller_of(run.sweep()), run.id)

    first = next(each for each in sent if "FROM job" in each and each.endswith(("FOR UPDATE", "ORDER BY job.id")))
    assert "job.labels" in first.partition("WHERE")[2], "it is locked with the trials, in the order of ids"
    (job,) = verifying(run)
    assert job.state is JobState.CANCELLED or job.requested == "cancel"
    end(run, job, "", JobState.CANCELLED)
    for number in (0, 2):
        run.end(number, JobState.CANCELLED)
    run.step()
    assert run.sweep().status == "CANCELLED"


@pytest.mark.both_databases
def test_key_that_ends_before_leaves_a_finishing_sweep_unverified(run: SweepRun) -> None:
    complete(run, 0)
    complete(run, 2)
    run.train(1, to=24, curve=constant(1.0))
    run.end(1, report={"model_hash": "same"})
    with run.db.write() as session:
        session.get_one(ApiKey, run.sweep().submits_as).revoked_at = utc_now()
    run.step()
    run.step()

    trial = run.trials()[1]
    assert trial.note == "weights: not compared: the API key that submits its trials is revoked or expired"
    assert (run.sweep().status, run.sweep().trunks_refused) == ("COMPLETED", "")
    assert (reasons(run), verifying(run)) == (["TRUNK_NOT_VERIFIED"], [])


@pytest.mark.both_databases
def test_full_queue_delays_a_verification_and_the_sweep_says_so(run: SweepRun) -> None:
    complete(run, 0)
    complete(run, 2)
    limit_queue(run, 0)
    complete(run, 1)
    assert run.sweep().status == "FINISHING"
    assert run.sweep().pending_reason.startswith("a fork is not verified yet: ")
    assert "max_waiting_jobs" in run.sweep().pending_reason

    limit_queue(run, None)
    run.step()
    assert (len(verifying(run)), run.sweep().pending_reason) == (1, "")


def limit_queue(run: SweepRun, most: int | None) -> None:
    with run.db.write() as session:
        session.get_one(Queue, DEFAULT_QUEUE).max_waiting_jobs = most


@pytest.mark.both_databases
def test_label_of_a_trial_makes_its_job_no_verification(make_run: Make) -> None:
    run = branched(make_run, labels={"trainyard/verifies": "1"})
    complete(run, 1)

    of_trials = {trial.job_id for trial in run.trials()}
    (job,) = [job for job in verifying(run) if job.id not in of_trials]
    assert job.document.training_config.resume_from_checkpoint is None
    for number in (0, 2):
        complete(run, number)
    assert run.sweep().status == "FINISHING"
    end(run, job, "same")
    run.step()
    assert (run.sweep().status, reasons(run)) == ("COMPLETED", ["VERIFIES", "TRUNK_VERIFIED"])
