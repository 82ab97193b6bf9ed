"""The end of an attempt by every cause, with and without retries of scripts: written, and never a word of our own."""

from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import ERROR_TYPES
from app.domain.lifecycle.retry_policy import rule_of
from app.domain.lifecycle.states import JobState
from app.models import Job, Lease, Reservation
from tests.builders import factories
from tests.builders.recovering import failed, record_of, trained
from tests.builders.walks import job_of, make_job, make_node, start_attempt

pytestmark = pytest.mark.both_databases


def script(*, retried: bool) -> dict[str, Any]:
    framework = {"type": "CUSTOM", "custom_script_path": "train.py", "custom_retry_on_error": retried}
    return factories.make_document(training_config={"framework": framework})


@pytest.mark.long
@pytest.mark.parametrize("may_restart", [False, True])
@pytest.mark.parametrize("retries_scripts", [False, True])
def test_every_cause_is_written_and_leaves_nothing_held(
    database: Database, *, retries_scripts: bool, may_restart: bool
) -> None:
    make_node(database)
    for cause in ERROR_TYPES:
        rule = rule_of(cause, retries_scripts=retries_scripts)
        if retries_scripts and rule == rule_of(cause, retries_scripts=False):
            continue  # as it was without
        job_id = make_job(database, JobState.QUEUED, document=script(retried=retries_scripts), max_retries=3)
        work = trained(database, start_attempt(database, job_id))

        ending = failed(database, work, cause, may_restart=may_restart)

        job, record = job_of(database, job_id), record_of(database, job_id, 1)
        assert (record.cause, record.ended_at is not None) == (cause, True)
        assert (job.state is JobState.FAILED) == (rule is None or rule.rolls_back), cause
        assert job.host_losses == (rule is not None and rule.takes_host_down), cause
        assert job.disk_waits == (rule is not None and rule.waits_for_disk), cause
        assert (job.hangs, job.error_type) == (cause == "HANG", cause)
        _put_away(database, job_id, restarted=ending.restart is not None)


def _put_away(db: Database, job_id: str, *, restarted: bool) -> None:
    """What the next one needs is free, but for what a restart in place has taken over."""
    with db.write() as session:
        held = session.scalars(select(Reservation.attempt).where(Reservation.job_id == job_id)).all()
        leased = session.scalars(select(Lease.attempt).where(Lease.job_id == job_id, Lease.released_at.is_(None))).all()
        assert held == leased == ([2] if restarted else [])
        session.delete(session.get_one(Job, job_id))


def test_hang_ends_a_job_that_does_not_want_it_retried(database: Database) -> None:
    make_node(database)
    document = factories.make_document(training_config={"retry_on_hang": False})
    job_id = make_job(database, JobState.QUEUED, document=document, max_retries=3)

    failed(database, trained(database, start_attempt(database, job_id)), "HANG", may_restart=True)

    job = job_of(database, job_id)
    assert (job.state, job.error_type, job.retries_used) == (JobState.FAILED, "HANG", 0)
    assert "the job asks that a hang is not retried" in str(job.error_message)


def test_a_script_that_fails_is_retried_as_its_job_says_and_then_ends(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, JobState.QUEUED, document=script(retried=True), max_retries=2)

    for number in (1, 2, 3):
        failed(database, trained(database, start_attempt(database, job_id)), "SCRIPT_ERROR")
        assert record_of(database, job_id, number).cause == "SCRIPT_ERROR"

    job = job_of(database, job_id)
    assert (job.state, job.error_type, job.retries_used) == (JobState.FAILED, "SCRIPT_ERROR", 2)
    assert "2 of 2 retries (max_retries) made no progress" in str(job.error_message)
