"""An attempt that had reached its halt, and saved, when it ended otherwise: the job halts all the same."""

from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job
from app.services.attempts import leases, work_orders
from app.services.attempts.work_orders import WorkOrder
from tests.builders import factories
from tests.builders.recovering import record_of, training
from tests.builders.walks import NO_WAIT, job_of, save

pytestmark = pytest.mark.both_databases

KILLED: dict[str, Any] = {"kind": "failed", "cause": "RANK_KILLED", "message": "rank 0 was killed"}


def halting(*at: int, unit: str = "steps", **training_config: Any) -> dict[str, Any]:
    document = factories.make_document(scheduling_config={"on_preemption": "requeue"})
    document["training_config"] |= {"halt_at": {"unit": unit, "at": list(at)}, **training_config}
    return document


def started(db: Database, document: dict[str, Any], *, total_steps: int | None = 9, **columns: Any) -> WorkOrder:
    work = training(db, document=document, **columns)
    with db.write() as session:
        session.get_one(Job, work.job_id).total_steps = total_steps
    return work


def ended(db: Database, work: WorkOrder, *, end_step: int, may_restart: bool = True, **outcome: Any) -> JobState:
    return work_orders.finish(
        db, work, Outcome(**{**KILLED, "end_step": end_step, **outcome}), NO_WAIT, may_restart=may_restart
    ).state


@pytest.mark.parametrize(
    "outcome",
    [
        {},
        {"cause": "NODE_LOST"},
        {"kind": "requeued", "cause": "", "message": "its node is drained"},
        {"kind": "preempted", "cause": "", "message": ""},
    ],
    ids=["killed", "node lost", "drained", "preempted"],
)
@pytest.mark.parametrize("document", [halting(2, 4), halting(1, 2, unit="epochs")], ids=["by steps", "by epochs"])
def test_job_halts_when_its_halt_was_saved(
    database: Database, document: dict[str, Any], outcome: dict[str, Any]
) -> None:
    work = started(database, document)
    save(database, work, 4)  # at the end of epoch 1

    state = ended(database, work, end_step=4, **outcome)

    job = job_of(database, work.job_id)
    assert (state, job.state, job.status_reason) == (JobState.PAUSED, JobState.PAUSED, "halted at step 4")
    assert (job.requested, job.error_type) == (None, None)
    assert record_of(database, work.job_id, 1).cause == (outcome.get("cause", "RANK_KILLED") or None)


@pytest.mark.parametrize("requested", [None, "pause"], ids=str)
def test_job_stands_at_its_halt_when_the_last_steps_were_not_reported(
    database: Database, requested: str | None
) -> None:
    work = started(database, halting(2, 4), total_steps=8)
    save(database, work, 4)
    with database.write() as session:
        job = session.get_one(Job, work.job_id)
        job.current_step, job.requested = 3, requested

    assert ended(database, work, end_step=3) is JobState.PAUSED
    job = job_of(database, work.job_id)
    assert (job.current_step, job.current_epoch, job.progress) == (4, 1.0, 0.5)


def test_lost_node_whose_last_steps_were_not_reported_leaves_the_job_at_its_halt(database: Database) -> None:
    work = started(database, halting(2, 4))
    save(database, work, 4)
    lease = leases.live(database)[0]

    assert leases.revoke(database, lease, cause="NODE_LOST", message="lost", actor="test", backoff=NO_WAIT)
    job = job_of(database, work.job_id)
    assert (job.state, job.status_reason, job.current_step) == (JobState.PAUSED, "halted at step 4", 4)


@pytest.mark.parametrize(
    ("document", "saved", "end_step", "total"),
    [
        (halting(2, 4), 3, 3, 9),
        (halting(2, 4), 4, 5, 9),
        (halting(2, 4), 4, 4, 4),
        (halting(2, unit="epochs"), 4, 4, 9),
        (factories.make_document(), 4, 4, 9),
    ],
    ids=["not at a halt", "past it", "at the last step", "not at the epoch", "no halts"],
)
def test_other_attempts_are_retried(
    database: Database, document: dict[str, Any], saved: int, end_step: int, total: int
) -> None:
    work = started(database, document, total_steps=total)
    save(database, work, saved)

    assert ended(database, work, end_step=end_step, may_restart=False) is JobState.QUEUED


def test_attempt_that_started_at_the_halt_is_retried(database: Database) -> None:
    work = started(database, halting(4), start_step=4)
    save(database, work, 4)

    assert ended(database, work, end_step=4, may_restart=False) is JobState.QUEUED


@pytest.mark.parametrize(("requested", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)], ids=str)
def test_requests_keep_their_meaning(database: Database, requested: str, state: JobState) -> None:
    work = started(database, halting(4))
    save(database, work, 4)
    with database.write() as session:
        session.get_one(Job, work.job_id).requested = requested

    assert ended(database, work, end_step=4) is state


def test_job_without_a_retry_fails_at_its_halt_too(database: Database) -> None:
    work = started(database, halting(4), max_retries=0)
    save(database, work, 4)

    assert ended(database, work, end_step=4) is JobState.FAILED


def test_diverged_run_goes_back_and_does_not_halt(database: Database) -> None:
    document = halting(4, on_divergence={"action": "rollback"})
    work = started(database, document)
    save(database, work, 2, loss=1.0)
    save(database, work, 4, loss=1.0)

    assert ended(database, work, end_step=3, cause="DIVERGED", may_restart=False) is JobState.QUEUED


def test_diverged_run_that_is_to_pause_does_not_stand_at_its_halt(database: Database) -> None:
    work = started(database, halting(4, on_divergence={"action": "rollback"}))
    save(database, work, 2, loss=1.0)
    save(database, work, 4, loss=1.0)
    with database.write() as session:
        session.get_one(Job, work.job_id).requested = "pause"

    assert ended(database, work, end_step=3, cause="DIVERGED", may_restart=False) is JobState.PAUSED
    assert job_of(database, work.job_id).current_step != 4
