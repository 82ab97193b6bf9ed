"""Pausing over HTTP: from every state, what is refused, and which events record it."""

from typing import Any

import pytest
from sqlalchemy import select

from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import TERMINAL, UNHELD, JobState
from app.models import Attempt, Job, Lease, Reservation
from app.models.base import utc_now
from app.services.attempts import failed_pauses, leases, work_orders
from tests.builders.controlled import (
    SCRIPT,
    audited,
    events,
    held_job,
    job_of,
    paused_job,
    refused,
    verb,
    with_checkpoints,
)
from tests.builders.factories import make_job
from tests.builders.walks import NO_WAIT
from tests.systems.apps import Api

SAVING = ("TRAINING", "CHECKPOINTING", "EVALUATING")


@pytest.mark.parametrize("state", sorted(UNHELD - {JobState.PAUSED}))
def test_job_without_a_holder_is_paused_at_once(api: Api, state: JobState):
    with api.db.write() as session:
        job_id = make_job(session, state=state, not_before_at=utc_now()).id

    job = verb(api, job_id, "pause")

    assert (job["status"], job["requested"], job["queue_position"]) == ("PAUSED", None, None)
    assert [(e["from_status"], e["to_status"], e["reason"]) for e in events(api, job_id)] == [
        (state, "PAUSED", "paused")
    ]
    assert audited(api, "job.pause") == [(job_id, {"save_checkpoint": True, "force": False})]
    assert api.dispatcher.nudged == []


def test_attempt_that_no_node_took_up_is_taken_back(api: Api):
    job_id = held_job(api, "SCHEDULING", claimed=False)

    job = verb(api, job_id, "pause")

    assert (job["status"], job["requested"]) == ("PAUSED", None)
    with api.db.read() as session:
        assert session.scalars(select(Reservation)).all() == []
        assert session.scalars(select(Lease).where(Lease.released_at.is_(None))).all() == []
        assert session.get_one(Attempt, (job_id, 1)).ended_at is not None
    assert leases.claim(api.db, job_id=job_id, attempt=1, node="local", boot_id="boot-1") is None


def test_cancel_takes_an_attempt_back_that_no_node_took_up(api: Api):
    job_id = held_job(api, "SCHEDULING", claimed=False)

    job = api.data(api.post(f"/v1/jobs/{job_id}/cancel", {"reason": "enough"}))

    assert (job["status"], job["requested"], job["status_reason"]) == ("CANCELLED", None, "enough")
    with api.db.read() as session:
        assert session.scalars(select(Reservation)).all() == []
    assert leases.claim(api.db, job_id=job_id, attempt=1, node="local", boot_id="boot-1") is None


@pytest.mark.parametrize("state", [*SAVING, "PREPARING"])
def test_pause_of_a_held_job_is_a_control_request_that_its_holder_reads(api: Api, state: str):
    job_id = held_job(api, state)

    job = verb(api, job_id, "pause")

    assert (job["status"], job["requested"]) == (state, "pause")
    assert api.dispatcher.nudged == [(job_id, "local")]
    with api.db.read() as session:
        lease = session.scalars(select(Lease)).one()
    renewed = leases.renew(api.db, lease_id=lease.id, fence=lease.fence, ran_seconds=1.0)
    assert (renewed.requested, renewed.pause_saves) == ("pause", True)
    (event,) = events(api, job_id)
    assert (event["type"], event["data"]) == ("job.pause_requested", {"save_checkpoint": True, "force": False})
    assert audited(api, "job.pause") == [(job_id, {"save_checkpoint": True, "force": False})]


def test_pause_is_idempotent(api: Api):
    job_id = held_job(api)

    first = verb(api, job_id, "pause")
    again = verb(api, job_id, "pause")

    assert again["version"] == first["version"]
    assert len(events(api, job_id)) == 1
    paused = paused_job(api)
    assert verb(api, paused, "pause")["status"] == "PAUSED"
    assert events(api, paused) == []


def test_repeated_pause_may_be_stricter_and_never_milder(api: Api):
    job_id = held_job(api)

    stored = []
    for body in ({}, {"force": True}, {"save_checkpoint": False}, {}):
        verb(api, job_id, "pause", body)
        job = job_of(api, job_id)
        stored.append((job.pause_saves, job.pause_force))

    assert stored == [(True, False), (True, True), (False, True), (False, True)]
    assert len(events(api, job_id)) == 3


def test_new_pause_forgets_how_an_earlier_one_was_asked_for(api: Api):
    job_id = held_job(api)
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.pause_saves, job.pause_force = False, True

    verb(api, job_id, "pause")

    assert (job_of(api, job_id).pause_saves, job_of(api, job_id).pause_force) == (True, False)


def test_pause_replaces_a_control_request_of_the_platform(api: Api):
    job_id = held_job(api)
    with api.db.write() as session:
        session.get_one(Job, job_id).requested = "requeue"

    assert verb(api, job_id, "pause")["requested"] == "pause"


@pytest.mark.parametrize("state", sorted(TERMINAL | {JobState.EXPORTING}))
def test_job_that_has_nothing_left_to_pause_is_refused(sqlite_api: Api, state: JobState):
    with sqlite_api.db.write() as session:
        job_id = make_job(session, state=state).id

    for name in ("pause", "resume"):
        problem = refused(sqlite_api, job_id, name)
        assert problem["code"] == "INVALID_STATE"
        assert state in problem["message"]


def test_job_that_is_about_to_be_cancelled_is_not_paused(sqlite_api: Api):
    job_id = held_job(sqlite_api)
    sqlite_api.post(f"/v1/jobs/{job_id}/cancel")

    assert "about to be cancelled" in refused(sqlite_api, job_id, "pause")["message"]


def test_cancel_takes_the_place_of_a_pause(api: Api):
    job_id = held_job(api)
    verb(api, job_id, "pause")

    assert api.data(api.post(f"/v1/jobs/{job_id}/cancel"))["requested"] == "cancel"


@pytest.mark.parametrize("can", [None, False])
def test_script_that_cannot_save_is_paused_only_without_a_checkpoint(sqlite_api: Api, can: bool | None):  # noqa: FBT001
    job_id = held_job(sqlite_api, training_config=SCRIPT)
    with sqlite_api.db.write() as session:
        session.get_one(Attempt, (job_id, 1)).can_checkpoint = can

    problem = refused(sqlite_api, job_id, "pause")

    assert problem["code"] == "INVALID_STATE"
    assert "can_checkpoint=True" in problem["message"]
    assert "save_checkpoint: false" in problem["message"]
    assert job_of(sqlite_api, job_id).requested is None
    assert verb(sqlite_api, job_id, "pause", {"save_checkpoint": False})["requested"] == "pause"


def test_script_that_cannot_save_is_paused_by_force(sqlite_api: Api):
    job_id = held_job(sqlite_api, training_config=SCRIPT)

    assert verb(sqlite_api, job_id, "pause", {"force": True})["requested"] == "pause"


def test_script_that_can_save_is_paused(sqlite_api: Api):
    job_id = held_job(sqlite_api, training_config=SCRIPT)
    with sqlite_api.db.write() as session:
        session.get_one(Attempt, (job_id, 1)).can_checkpoint = True

    assert verb(sqlite_api, job_id, "pause")["requested"] == "pause"


def test_training_that_ends_before_it_is_paused_is_completed(api: Api):
    job_id = held_job(api)
    verb(api, job_id, "pause")

    work = work_orders.load_work(api.db, job_id, 1)
    work_orders.finish(api.db, work, Outcome(kind="completed", end_step=7), NO_WAIT)

    job = api.get(f"/v1/jobs/{job_id}")
    assert (job["status"], job["requested"]) == ("COMPLETED", None)
    assert "COMPLETED" in refused(api, job_id, "pause")["message"]


def test_paused_job_shows_its_checkpoint_and_holds_nothing(api: Api):
    job_id = held_job(api)
    verb(api, job_id, "pause")
    made = with_checkpoints(api, job_id)

    work_orders.finish(api.db, work_orders.load_work(api.db, job_id, 1), Outcome(kind="paused", end_step=20), NO_WAIT)

    job = api.get(f"/v1/jobs/{job_id}")
    assert (job["status"], job["requested"], job["latest_checkpoint_id"]) == ("PAUSED", None, made[20])
    with api.db.read() as session:
        assert session.scalars(select(Reservation)).all() == []


def test_pause_whose_checkpoint_cannot_be_saved_is_taken_back(api: Api):
    job_id = held_job(api)
    requested = verb(api, job_id, "pause")
    work = work_orders.load_work(api.db, job_id, 1)

    for _ in range(2):
        failed_pauses.withdraw(api.db, work, "the disk is full")

    job = api.get(f"/v1/jobs/{job_id}")
    assert (job["status"], job["requested"], job["version"]) == ("TRAINING", None, requested["version"] + 1)
    _, event = events(api, job_id)
    assert (event["type"], event["reason"]) == ("job.pause_failed", "checkpoint_failed")
    assert "the disk is full" in event["message"]
    assert [target for target, _ in audited(api, "job.pause_failed")] == [job_id]
    assert verb(api, job_id, "pause")["requested"] == "pause"


@pytest.mark.parametrize("column", [{"pause_force": True}, {"pause_saves": False}, {"requested": "cancel"}])
def test_only_a_pause_that_has_to_save_is_taken_back(api: Api, column: dict[str, Any]):
    job_id = held_job(api)
    verb(api, job_id, "pause")
    work = work_orders.load_work(api.db, job_id, 1)
    with api.db.write() as session:
        for name, value in column.items():
            setattr(session.get_one(Job, job_id), name, value)

    failed_pauses.withdraw(api.db, work, "the disk is full")

    assert job_of(api, job_id).requested == column.get("requested", "pause")


def test_former_holder_of_a_job_cannot_withdraw_its_pause(api: Api):
    job_id = held_job(api)
    verb(api, job_id, "pause")
    work = work_orders.load_work(api.db, job_id, 1)
    with api.db.write() as session:
        session.get_one(Job, job_id).fence += 1

    with pytest.raises(LeaseLost):
        failed_pauses.withdraw(api.db, work, "the disk is full")

    assert job_of(api, job_id).requested == "pause"
