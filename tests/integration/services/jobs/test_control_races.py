"""Control requests that race each other, the planner, a claim or an outcome: one wins, none is half applied."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import HELD, JobState
from app.models import Attempt, Job, Lease, Reservation
from app.services.attempts import leases, work_orders
from app.services.attempts.leases import Claim
from app.services.scheduling import planner
from tests.builders.controlled import events, job_of, paused_job
from tests.builders.factories import make_node
from tests.builders.walks import NO_WAIT
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

ROUNDS = 5


def asked(api: Api, job_id: str, verb: str, body: Any = None, **headers: str) -> int:
    """The status, over a client of its own: this runs on many threads."""
    headers = {"Authorization": f"Bearer {api.key}", **headers}
    answer = api.app.test_client().post(f"/v1/jobs/{job_id}/{verb}", json=body or {}, headers=headers)
    return answer.status_code


def deletion(api: Api, job_id: str) -> int:
    headers = {"Authorization": f"Bearer {api.key}"}
    return api.app.test_client().delete(f"/v1/jobs/{job_id}", headers=headers).status_code


def placed_and_claimed(db: Database, job_id: str) -> Claim | None:
    planner.plan_once(db)
    return leases.claim(db, job_id=job_id, attempt=1, node="local", boot_id="boot-1")


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [done.result() for done in [pool.submit(call) for call in calls]]


def queued(api: Api) -> str:
    job_id = api.submit()
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.queued_at = JobState.QUEUED, job.created_at
    return job_id


def assert_whole(db: Database, job_id: str) -> None:
    """Devices, lease and open attempt are there exactly while the job is held."""
    with db.read() as session:
        held = session.get_one(Job, job_id).state in HELD
        devices = session.scalars(select(Reservation).where(Reservation.job_id == job_id)).all()
        live = session.scalars(select(Lease).where(Lease.job_id == job_id, Lease.released_at.is_(None))).all()
        unfinished = session.scalars(select(Attempt).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))).all()
    assert (len(devices), len(live), len(unfinished)) == ((1, 1, 1) if held else (0, 0, 0))


def test_one_of_many_resumes_wins(api: Api):
    job_id = paused_job(api)

    statuses = at_once(*[partial(asked, api, job_id, "resume")] * 6)

    assert sorted(statuses) == [202, 409, 409, 409, 409, 409]
    assert [event["to_status"] for event in events(api, job_id)] == ["QUEUED"]


def test_concurrent_pauses_are_one(api: Api):
    job_id = queued(api)

    statuses = at_once(*[partial(asked, api, job_id, "pause")] * 6)

    assert statuses == [202] * 6
    assert [event["to_status"] for event in events(api, job_id)][1:] == ["PAUSED"]


def test_many_retries_under_one_key_make_one_child(api: Api):
    job_id = api.submit()
    asked(api, job_id, "cancel")

    statuses = at_once(*[partial(asked, api, job_id, "retry", **{"Idempotency-Key": "once"})] * 6)

    assert statuses == [201] * 6
    assert len(api.get(f"/v1/jobs/{job_id}")["child_job_ids"]) == 1


def test_retry_and_deletion_leave_no_child_without_a_parent(api: Api):
    for _ in range(ROUNDS):
        job_id = api.submit()
        asked(api, job_id, "cancel")

        deleted, retried = at_once(partial(deletion, api, job_id), partial(asked, api, job_id, "retry"))

        assert deleted in (204, 409)
        assert retried in (201, 404)
        jobs = api.get("/v1/jobs?page_size=100")["jobs"]
        assert {job["parent_job_id"] for job in jobs} <= {None, *(job["job_id"] for job in jobs)}


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_planner_and_claim_race_a_control_request(api: Api, verb: str):
    with api.db.write() as session:
        make_node(session, devices=1)
    for _ in range(ROUNDS):
        job_id = queued(api)

        claim, status = at_once(partial(placed_and_claimed, api.db, job_id), partial(asked, api, job_id, verb))

        assert status in (200, 202)
        job = job_of(api, job_id)
        assert_whole(api.db, job_id)
        if claim is None:
            assert job.state in (JobState.PAUSED, JobState.CANCELLED)
        else:
            assert (job.state, job.requested) == (JobState.PREPARING, verb)
            outcome = Outcome(kind="cancelled" if verb == "cancel" else "paused")
            work_orders.finish(api.db, work_orders.load_work(api.db, job_id, 1), outcome, NO_WAIT)
            assert_whole(api.db, job_id)


@pytest.mark.parametrize(("verb", "kind"), [("pause", "paused"), ("cancel", "cancelled")])
def test_completion_races_a_control_request(api: Api, verb: str, kind: Any):
    with api.db.write() as session:
        make_node(session, devices=1)
    for _ in range(ROUNDS):
        job_id = queued(api)
        assert placed_and_claimed(api.db, job_id) is not None
        work = work_orders.load_work(api.db, job_id, 1)
        work_orders.enter_phase(api.db, work, JobState.TRAINING)

        completed = Outcome(kind="completed", end_step=5)
        status, _ = at_once(
            partial(asked, api, job_id, verb), partial(work_orders.finish, api.db, work, completed, NO_WAIT)
        )

        job = job_of(api, job_id)
        assert (job.state, job.requested) == (JobState.COMPLETED, None)
        assert status in (200, 202, 409), "the response says whether the request came too late"
        assert asked(api, job_id, verb) == 409
        assert_whole(api.db, job_id)
        with pytest.raises(LeaseLost):
            work_orders.finish(api.db, work, Outcome(kind=kind), NO_WAIT)
