"""Several attempts that a node claims in one transaction: each by the rules of a claim, and none because of another."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.resources import Device
from app.models import Attempt, AuditEntry, Job, JobEvent, Lease, StuckDevice
from app.services.attempts import leases
from app.services.attempts.leases import Claim
from app.services.scheduling import placement, planner
from tests.builders.statements import statements
from tests.builders.walks import job_of, make_gang, make_job, make_node

pytestmark = pytest.mark.both_databases

Attempts = list[tuple[str, int]]


def dispatched(db: Database, count: int, **columns: Any) -> list[str]:
    """Jobs that are placed on n1, each on a device of its own, and wait for it."""
    make_node(db, devices=count)
    job_ids = [make_job(db, JobState.QUEUED, **columns) for _ in range(count)]
    placements = [
        Placement(job_id=job_id, node="n1", devices=(Device(index=index, type="cpu"),))
        for index, job_id in enumerate(job_ids)
    ]
    assert len(placement.place(db, placements, "planner")) == count
    return job_ids


def first_of(job_ids: list[str]) -> Attempts:
    return [(job_id, 1) for job_id in job_ids]


def claim(db: Database, attempts: Attempts, *, node: str = "n1") -> tuple[list[Claim], Attempts]:
    return leases.claim_together(db, attempts, node=node, boot_id="boot")


def states(db: Database, job_ids: list[str]) -> list[str]:
    return [job_of(db, job_id).status for job_id in job_ids]


def test_all_of_it_is_written_for_each(database: Database) -> None:
    job_ids = dispatched(database, 3)

    claims, others = claim(database, first_of(job_ids))

    assert others == []
    assert sorted(each.job_id for each in claims) == job_ids
    with database.read() as session:
        for each in claims:
            job, attempt = session.get_one(Job, each.job_id), session.get_one(Attempt, (each.job_id, 1))
            lease = session.get_one(Lease, each.lease_id)
            events = session.scalars(
                select(JobEvent).where(JobEvent.job_id == each.job_id).order_by(JobEvent.seq)
            ).all()
            entries = session.scalars(select(AuditEntry).where(AuditEntry.target == each.job_id)).all()
            assert (job.status, job.fence, job.started_at is not None) == ("PREPARING", each.fence, True)
            assert (lease.job_id, lease.counter, lease.boot_id) == (each.job_id, 1, "boot")
            assert attempt.started_at is not None
            assert [(event.seq, event.to_status, event.message) for event in events][1:] == [
                (2, "PREPARING", "attempt 1 on n1")
            ]
            assert events[1].actor == "node@n1"
            assert len(entries) == 2


def test_ten_claims_ask_the_database_hardly_more_than_one(database: Database) -> None:
    one, *many = dispatched(database, 11)
    with statements(database) as for_one:
        assert leases.claim(database, job_id=one, attempt=1, node="n1", boot_id="boot") is not None

    with statements(database) as for_many:
        assert len(claim(database, first_of(many))[0]) == 10

    assert len(for_many) <= len(for_one) + 1  # about webhooks
    assert not [statement for statement in for_many if "spec" in statement]


def cancel(db: Database, job_id: str) -> None:
    with db.write() as session:
        session.get_one(Job, job_id).requested = "cancel"


def break_device(db: Database, job_id: str) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with db.write() as session:
        session.add(StuckDevice(node="n1", device_index=1, job_id="j", attempt=1, since=at, seen_at=at))


def outdate(db: Database, job_id: str) -> None:
    with db.write() as session:
        session.get_one(Job, job_id).fence += 1


@pytest.mark.parametrize("spoil", [cancel, break_device, outdate])
def test_one_that_cannot_simply_start_is_left_to_a_claim_of_its_own(database: Database, spoil: Any) -> None:
    job_ids = dispatched(database, 3)
    spoil(database, job_ids[1])

    claims, others = claim(database, first_of(job_ids))

    assert [each.job_id for each in claims] == [job_ids[0], job_ids[2]]
    assert others == [(job_ids[1], 1)]
    assert states(database, job_ids) == ["PREPARING", "SCHEDULING", "PREPARING"]


def test_what_does_not_wait_for_the_node_is_passed_over(database: Database) -> None:
    claimed, mine = dispatched(database, 2)
    assert leases.claim(database, job_id=claimed, attempt=1, node="n1", boot_id="boot") is not None
    make_node(database, "n2")
    gone = "job-gone"

    assert claim(database, [(mine, 1)], node="n2") == ([], [])
    claims, others = claim(database, [(claimed, 1), (mine, 1), (mine, 2), (gone, 1)])

    assert [(each.job_id, each.attempt) for each in claims] == [(mine, 1)]
    assert others == [(gone, 1)]  # whose own claim says so


def test_a_wrong_state_of_one_is_no_claim_of_any_and_leaves_no_trace(database: Database) -> None:
    job_ids = dispatched(database, 2)
    with database.write() as session:
        session.get_one(Job, job_ids[0]).status = JobState.PAUSED

    claims, others = claim(database, first_of(job_ids))

    assert (claims, sorted(others)) == ([], first_of(job_ids))
    with database.read() as session:
        assert session.scalars(select(Lease.counter)).all() == [0, 0]
        assert session.get_one(Attempt, (job_ids[1], 1)).started_at is None
    assert states(database, job_ids) == ["PAUSED", "SCHEDULING"]


def test_first_and_further_attempts_start_together(database: Database) -> None:
    job_ids = dispatched(database, 2)
    started = datetime(2026, 1, 1, tzinfo=UTC)
    with database.write() as session:
        session.get_one(Job, job_ids[1]).started_at = started

    claims, _ = claim(database, first_of(job_ids))

    assert len(claims) == 2
    assert job_of(database, job_ids[1]).started_at == started
    assert job_of(database, job_ids[0]).started_at not in (None, started)


def test_second_node_of_a_gang_claims_its_part_of_what_has_started(database: Database) -> None:
    job_id = make_gang(database)
    planner.plan_once(database)

    claims = [each for node in ("n1", "n2") for each in claim(database, [(job_id, 1)], node=node)[0]]

    assert [each.node for each in claims] == ["n1", "n2"]
    with database.read() as session:
        events = session.scalars(select(JobEvent.to_status).where(JobEvent.job_id == job_id).order_by(JobEvent.seq))
        assert events.all() == ["SCHEDULING", "PREPARING"]


def test_each_is_claimed_once_however_often_it_is_delivered(database: Database) -> None:
    attempts = first_of(dispatched(database, 8))
    deliveries = [attempts, attempts[::-1], attempts[2:6], attempts[::2]]

    with ThreadPoolExecutor(len(deliveries)) as pool:
        answers = list(pool.map(lambda delivery: claim(database, delivery), deliveries))

    assert sorted((each.job_id, each.attempt) for claims, _ in answers for each in claims) == attempts
    assert [others for _, others in answers] == [[]] * len(deliveries)
