"""Several jobs that are placed in one transaction: limits between them, their events, and what it costs."""

from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import StaleJob
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.resources import Device
from app.models import Attempt, AuditEntry, Job, JobEvent, Lease, Reservation, WebhookDelivery
from app.services.attempts import leases
from app.services.lifecycle import transitions
from app.services.lifecycle.transitions import Step
from app.services.scheduling import placement
from tests.builders import factories
from tests.builders.statements import statements
from tests.builders.walks import job_of, make_job, make_node

pytestmark = pytest.mark.both_databases

CPU = "cpu"


def on_node(job_ids: list[str], *, node: str = "n1") -> list[Placement]:
    """Each with a slot of its own."""
    return [
        Placement(job_id=job_id, node=node, devices=(Device(index=index, type=CPU),))
        for index, job_id in enumerate(job_ids)
    ]


def queued(db: Database, count: int, **columns: Any) -> list[str]:
    return [make_job(db, JobState.QUEUED, **columns) for _ in range(count)]


def placed(db: Database, job_ids: list[str]) -> list[str]:
    return [each.job_id for each in placement.place(db, on_node(job_ids), "planner")]


def start_as_read(db: Database, first: str, read: Job) -> None:
    with db.write() as session:
        jobs = [transitions.load_for_change(session, first), session.merge(read, load=False)]
        steps = [Step(job=job, message="", changes={}) for job in jobs]
        transitions.transition_all(session, steps, JobState.SCHEDULING, actor="test")


def limit_node(db: Database) -> None:
    make_node(db, devices=4, limits={"max_concurrent": 2})


def limit_queue(db: Database) -> None:
    make_node(db, devices=4)
    with db.write() as session:
        factories.make_queue(session).max_running_jobs = 2


def limit_project(db: Database) -> None:
    make_node(db, devices=4)
    with db.write() as session:
        factories.make_project(session).quota = {"cpu_slots": {"limit": 2}}


@pytest.mark.parametrize("limit", [limit_node, limit_queue, limit_project])
def test_each_counts_for_the_limits_of_those_after_it(database: Database, limit: Any) -> None:
    job_ids = queued(database, 4)
    limit(database)

    assert placed(database, job_ids) == job_ids[:2]

    assert [job_of(database, job_id).status for job_id in job_ids] == ["SCHEDULING"] * 2 + ["QUEUED"] * 2
    with database.read() as session:
        assert set(session.scalars(select(Lease.job_id))) == set(job_ids[:2])


def test_a_device_is_given_once(database: Database) -> None:
    make_node(database)
    first, second = queued(database, 2)
    twice = [on_node([job_id])[0] for job_id in (first, second)]

    assert [each.job_id for each in placement.place(database, twice, "planner")] == [first]

    with database.read() as session:
        assert session.scalars(select(Reservation.job_id)).all() == [first]


def test_all_of_it_is_written_for_each(database: Database) -> None:
    make_node(database, devices=4)
    job_ids = queued(database, 3)

    placed(database, job_ids)

    with database.read() as session:
        for index, job_id in enumerate(job_ids):
            job, attempt = session.get_one(Job, job_id), session.get_one(Attempt, (job_id, 1))
            event = session.scalars(select(JobEvent).where(JobEvent.job_id == job_id)).one()
            entry = session.scalars(select(AuditEntry).where(AuditEntry.target == job_id)).one()
            held = session.scalars(select(Reservation).where(Reservation.job_id == job_id)).one()
            assert (job.status, job.fence, job.event_seq, job.node_names) == ("SCHEDULING", 1, 1, ["n1"])
            assert (attempt.fence, attempt.device_indices, attempt.ending) == (1, [[index]], None)
            assert (event.seq, event.from_status, event.to_status) == (1, "QUEUED", "SCHEDULING")
            assert event.message == entry.message == job.status_reason == "attempt 1 on n1"
            assert (held.node, held.device_index, held.attempt) == ("n1", index, 1)


def test_webhooks_are_notified_of_the_jobs_of_their_projects(database: Database) -> None:
    make_node(database, devices=4)
    (other,) = queued(database, 1, project="other")
    (ours,) = queued(database, 1)
    with database.write() as session:
        factories.make_webhook(session)

    placed(database, [other, ours])

    with database.read() as session:
        (delivery,) = session.scalars(select(WebhookDelivery))
    assert delivery.payload["job"]["job_id"] == ours
    assert (delivery.payload["job"]["status"], delivery.payload["event"]["seq"]) == ("SCHEDULING", 1)


def test_one_changed_job_makes_the_whole_placement_stale(database: Database) -> None:
    first, second = queued(database, 2)
    stale = job_of(database, second)
    with database.write() as session:
        transitions.load_for_change(session, second).version += 1

    with pytest.raises(StaleJob):
        start_as_read(database, first, stale)

    assert [job_of(database, job_id).status for job_id in (first, second)] == ["QUEUED", "QUEUED"]


def test_many_placements_need_as_few_statements_as_one(database: Database) -> None:
    make_node(database, devices=20)
    one, *many = queued(database, 20)
    with statements(database) as for_one:
        placement.place(database, on_node([one]), "planner")

    with statements(database) as for_many:
        assert len(placement.place(database, on_node([one, *many]), "planner")) == len(many)

    assert len(for_many) <= len(for_one)


def test_after_the_first_ones_each_node_gets_its_own_at_once(database: Database) -> None:
    names = [f"n{number}" for number in range(5)]
    for name in names:
        make_node(database, name, devices=30)
    job_ids = queued(database, 150)
    placements = [
        Placement(job_id=job_id, node=names[index % 5], devices=(Device(index=index // 5, type=CPU),))
        for index, job_id in enumerate(job_ids)
    ]
    announced: list[list[placement.Dispatched]] = []

    dispatched = placement.place_all(database, placements, "planner", announced.append)

    assert [each.job_id for each in announced[0]] == job_ids[: placement.TOGETHER]  # the head of the serving order
    assert [len({each.node for each in together}) for together in announced[1:]] == [3, 3]
    assert sorted(each.job_id for each in dispatched) == sorted(job_ids)
    for name in names:
        of_node = [each.job_id for each in dispatched if each.node == name]
        assert of_node == [each.job_id for each in placements if each.node == name]


def test_a_claim_reads_no_document(database: Database) -> None:
    make_node(database)
    (job_id,) = queued(database, 1)
    placed(database, [job_id])

    with statements(database) as sent:
        assert leases.claim(database, job_id=job_id, attempt=1, node="n1", boot_id="b") is not None

    assert not [statement for statement in sent if "spec" in statement]
