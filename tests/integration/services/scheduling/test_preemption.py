"""Preemption, and the effect of control requests on unclaimed attempts, on both databases."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.errors import IllegalTransition
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.preemption import Preemption
from app.models import Attempt, Job
from app.models.base import utc_now
from app.services.attempts import failed_pauses, leases, work_orders
from app.services.attempts.work_orders import Ending
from app.services.jobs.control import requests as control_requests
from app.services.nodes import registry
from app.services.scheduling import planner, preemption
from tests.builders import factories
from tests.builders.recovering import events_of, failed, record_of, trained, training
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt, statuses
from tests.systems.commands import run_local, run_local_json

pytestmark = pytest.mark.both_databases

REQUEUE = factories.make_document(scheduling_config={"on_preemption": "requeue"})


def request_preemption(db: Database, job_id: str) -> Job:
    with db.write() as session:
        return preemption.request_preemption(session, job_id, actor="planner", reason="job-1 is more urgent")


@pytest.mark.parametrize(
    ("document", "after"), [(factories.make_document(), JobState.PREEMPTED), (REQUEUE, JobState.QUEUED)]
)
def test_a_preempted_job_ends_or_waits_again_as_its_document_says(
    database: Database, document: dict[str, Any], after: JobState
) -> None:
    work = training(database, document=document, max_retries=0)

    for _ in range(2):
        request_preemption(database, work.job_id)
    renewal = leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)
    ending = work_orders.finish(database, work, Outcome(kind="preempted", end_step=4), NO_WAIT, may_restart=True)

    assert (renewal.requested, renewal.preemption) == ("preempt", "terminate" if after == "PREEMPTED" else "requeue")
    assert ending == Ending(state=after)
    job = job_of(database, work.job_id)
    assert (job.retries_used, job.host_losses, job.requested, job.error_type) == (0, 0, None, None)
    assert statuses(database, work.job_id)[-2:] == ["TRAINING", after]
    asked = events_of(database, work.job_id, "job.preempt_requested")
    assert [(event.actor, event.message) for event in asked] == [("planner", "job-1 is more urgent")]


@pytest.mark.parametrize(
    ("document", "requested", "after"),
    [
        (REQUEUE, None, JobState.PAUSED),
        (REQUEUE, "preempt", JobState.PAUSED),
        (REQUEUE, "requeue", JobState.PAUSED),
        (factories.make_document(), "preempt", JobState.PREEMPTED),
    ],
)
def test_a_job_that_halts_by_its_document_frees_its_devices_unless_preemption_ends_it(
    database: Database, document: dict[str, Any], requested: str | None, after: JobState
) -> None:
    work = training(database, document=document, max_retries=0)
    with database.write() as session:
        session.get_one(Job, work.job_id).requested = requested

    ending = work_orders.finish(
        database, work, Outcome(kind="paused", message="halted at step 4", end_step=4, exit_code=0), NO_WAIT
    )

    job = job_of(database, work.job_id)
    assert (ending.state, job.status_reason, job.requested) == (after, "halted at step 4", None)
    assert (job.retries_used, job.error_type, record_of(database, work.job_id, 1).end_reason) == (
        0,
        None,
        "halted at step 4",
    )


def test_preemption_never_counts_however_often(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, JobState.QUEUED, document=REQUEUE, max_retries=0)
    for _ in range(6):
        work = trained(database, start_attempt(database, job_id))
        request_preemption(database, job_id)
        assert work_orders.finish(database, work, Outcome(kind="preempted"), NO_WAIT).state is JobState.QUEUED

    assert job_of(database, job_id).retries_used == 0
    assert record_of(database, job_id, 6).policy == "job_reschedule"


def test_a_rank_that_breaks_while_it_is_preempted_does_not_save_the_job_from_it(database: Database) -> None:
    work = training(database)
    request_preemption(database, work.job_id)

    assert failed(database, work).state is JobState.PREEMPTED


@pytest.mark.parametrize(
    "state", [JobState.PENDING, JobState.QUEUED, JobState.SCHEDULING, JobState.EXPORTING, JobState.COMPLETED]
)
def test_only_a_job_that_runs_is_preempted(database: Database, state: JobState) -> None:
    job_id = make_job(database, state)

    with pytest.raises(IllegalTransition, match=f"is {state} and cannot be preempted"):
        request_preemption(database, job_id)


def test_a_stopping_job_is_not_preempted(database: Database) -> None:
    work = training(database)
    registry.request_requeue(database, "n1")

    assert request_preemption(database, work.job_id).requested == "requeue"


@pytest.mark.parametrize("urgent", ["preempt", "requeue"])
@pytest.mark.parametrize("first", ["pause", "urgent"])
def test_a_pause_can_not_fail_where_the_devices_are_needed(database: Database, urgent: str, first: str) -> None:
    work = training(database)

    def pause() -> None:
        with database.write() as session:
            control_requests.request_pause(session, work.job_id, actor="key-1")

    def need_devices() -> None:
        if urgent == "preempt":
            request_preemption(database, work.job_id)
        else:
            registry.request_requeue(database, "n1")

    for ask in (pause, need_devices) if first == "pause" else (need_devices, pause):
        ask()
    failed_pauses.withdraw(database, work, "no room")

    job = job_of(database, work.job_id)
    assert (job.requested, job.pause_force) == ("pause", True)
    assert work_orders.finish(database, work, Outcome(kind="paused"), NO_WAIT).state is JobState.PAUSED


@pytest.mark.parametrize(
    ("requested", "after"),
    [
        ("cancel", JobState.CANCELLED),
        ("pause", JobState.PAUSED),
        ("requeue", JobState.QUEUED),
        ("preempt", JobState.QUEUED),  # nothing of it ran
    ],
)
def test_an_attempt_with_a_pending_control_request_is_not_claimed(
    database: Database, requested: str, after: JobState
) -> None:
    make_node(database)
    job_id = make_job(database, JobState.QUEUED)
    planner.plan_once(database)
    with database.write() as session:
        session.get_one(Job, job_id).requested = requested

    claim = leases.claim(database, job_id=job_id, attempt=1, node="n1", boot_id="b")

    assert claim is None
    job = job_of(database, job_id)
    assert (job.state, job.requested, job.retries_used) == (after, None, 0)
    assert leases.live(database) == []


@pytest.mark.long
def test_an_administrator_preempts_a_job_at_the_machine(db: Database) -> None:
    with db.write() as session:
        job = factories.make_job(session)
        factories.make_attempt(session, job, factories.make_node(session))
        job_id = job.id

    asked = run_local("jobs", "preempt", job_id, "--reason", "the node is needed")

    assert (asked.exit_code, asked.stdout) == (0, f"{job_id} PREPARING (preemption requested)\n")
    assert run_local_json("jobs", "preempt", job_id)["status"] == "PREPARING"
    assert (job_of(db, job_id).requested, job_of(db, job_id).requested_reason) == ("preempt", "the node is needed")


def preemptible(**scheduling: Any) -> dict[str, Any]:
    return factories.make_document(scheduling_config={"preemptible": True, **scheduling})


def planned(db: Database) -> tuple[list[str], list[tuple[str, str]]]:
    """The jobs that were placed, and the nudges (job, node) for preempted jobs."""
    nudged: list[tuple[str, str]] = []
    placed = planner.plan_once(db, nudge=lambda job_id, node: nudged.append((job_id, node)))
    return [dispatched.job_id for dispatched in placed], nudged


def test_the_planner_preempts_for_a_more_urgent_job_and_gives_it_the_devices(database: Database) -> None:
    make_node(database, devices=1)
    low = make_job(database, JobState.QUEUED, document=preemptible(on_preemption="requeue"), priority=2)
    work = trained(database, start_attempt(database, low))
    high = make_job(database, JobState.QUEUED, priority=8)

    assert planned(database) == ([], [(low, "n1")])
    assert planned(database) == ([], []), "asked once"
    asked = job_of(database, low)
    assert (asked.requested, asked.requested_reason) == (
        "preempt",
        f"its devices go to {high}, whose priority is 8, not 2",
    )
    assert job_of(database, high).pending_reason.endswith("n1 is being cleared for it")
    assert work_orders.finish(database, work, Outcome(kind="preempted"), NO_WAIT).state is JobState.QUEUED
    assert planned(database) == ([high], [])


def test_a_job_within_its_minimum_run_time_is_not_preempted(database: Database) -> None:
    make_node(database, devices=1)
    low = make_job(database, JobState.QUEUED, document=preemptible(min_runtime_seconds=60), priority=2)
    work = trained(database, start_attempt(database, low))
    make_job(database, JobState.QUEUED, priority=8)

    leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=59.0)
    assert planned(database) == ([], [])
    leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=60.0)
    assert planned(database) == ([], [(low, "n1")])


def test_the_job_that_saved_last_is_preempted(database: Database) -> None:
    make_node(database, devices=3)
    works = [
        trained(database, start_attempt(database, make_job(database, JobState.QUEUED, document=document, priority=2)))
        for document in (preemptible(), preemptible(), factories.make_document())
    ]
    with database.write() as session:
        for work in works:
            session.get_one(Attempt, (work.job_id, 1)).trained_at = utc_now() - timedelta(minutes=10)
    save(database, works[1], 5)
    make_job(database, JobState.QUEUED, priority=8)

    assert planned(database) == ([], [(works[1].job_id, "n1")])


def test_a_project_gets_back_what_it_deserves(database: Database) -> None:
    make_node(database, devices=2)
    for _ in range(2):
        trained(
            database, start_attempt(database, make_job(database, JobState.QUEUED, document=preemptible(), priority=9))
        )
    with database.write() as session:
        factories.make_project(session, "owner").quota = {"cpu_slots": {"deserved": 1}}
    for _ in range(2):
        make_job(database, JobState.QUEUED, project="owner", priority=0)

    placed, nudged = planned(database)

    assert placed == []
    assert len(nudged) == 1
    assert planned(database) == ([], [])


def test_a_cleared_node_stays_reserved_over_passes(database: Database) -> None:
    """Also where another project would be served first by then."""
    make_node(database, devices=1)
    low = make_job(database, JobState.QUEUED, document=preemptible(on_preemption="requeue"), priority=2)
    work = trained(database, start_attempt(database, low))
    high = make_job(database, JobState.QUEUED, priority=8)
    planned(database)
    assert job_of(database, high).awaits_node == "n1"
    other = make_job(database, JobState.QUEUED, project="other")

    assert planned(database) == ([], [])
    work_orders.finish(database, work, Outcome(kind="preempted"), NO_WAIT)

    assert planned(database) == ([high], [])
    assert job_of(database, high).awaits_node == ""
    assert job_of(database, other).state is JobState.QUEUED


def test_a_promise_that_can_not_be_kept_is_given_up(database: Database) -> None:
    make_node(database, devices=1)
    low = make_job(database, JobState.QUEUED, document=preemptible(), priority=2)
    trained(database, start_attempt(database, low))
    high = make_job(database, JobState.QUEUED, priority=8)
    planned(database)
    registry.set_state(database, "n1", "drained")

    assert planned(database) == ([], [])
    assert job_of(database, high).awaits_node == ""


def test_no_job_is_preempted_that_changed_since_the_snapshot(database: Database) -> None:
    make_node(database, devices=1)
    low = make_job(database, JobState.QUEUED, document=preemptible(), priority=2)
    trained(database, start_attempt(database, low))
    high = make_job(database, JobState.QUEUED, priority=8)
    asked = Preemption(job_id=low, attempt=1, for_job=high, reason="")

    changes: list[dict[Any, Any]] = [{"requested": "pause"}, {"status": JobState.PAUSED}]
    for change in changes:
        with database.write() as session:
            session.query(Job).filter_by(id=high).update(change)
        planner._preempt(database, asked, "planner", lambda *_: None)
    with database.write() as session:
        session.query(Job).filter_by(id=high).update({"status": JobState.QUEUED, "requested": None})
    planner._preempt(database, replace(asked, attempt=2), "planner", lambda *_: None)

    assert job_of(database, low).requested is None
