"""The change counter: a write that needs an action is seen after its commit, what happens all the time is not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import delete, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.database.change_counter import ChangeCounter
from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.migrations.runner import upgrade
from app.models import (
    Batch,
    Device,
    Inspection,
    Job,
    Lease,
    Node,
    NodeFault,
    Project,
    Queue,
    Service,
    StuckDevice,
    WebhookDelivery,
)
from app.models.base import utc_now
from app.services.attempts import leases
from app.services.lifecycle import transitions
from app.services.nodes import registry
from app.services.scheduling import planner
from tests.builders.batches import make_batch
from tests.builders.factories import make_attempt, make_job, make_node, make_webhook
from tests.builders.serving import make_service

pytestmark = pytest.mark.both_databases


@pytest.fixture
def counter(database: Database) -> ChangeCounter:
    """Of a cluster with a running and a waiting job, after its first reading."""
    with database.write() as session:
        node = make_node(session, "n1")
        make_attempt(session, make_job(session, id="job-runs"), node)
        make_job(session, id="job-waits")
        hook = make_webhook(session, id="hook")
        session.add(
            WebhookDelivery(
                id="delivery", webhook_id=hook.id, event_id="e", event_type="t", payload={}, state="given_up"
            )
        )
        session.add(Inspection(id="inspection", project="default", job_id="job-waits"))
        make_service(session)
        make_batch(session)
    return settled(ChangeCounter(database))


def settled(counter: ChangeCounter) -> ChangeCounter:
    assert counter.has_changed(), "the first reading counts as a change"
    assert not counter.has_changed()
    return counter


def cancel(session: Session) -> None:
    job = transitions.load_for_change(session, "job-waits")
    transitions.transition(session, job, JobState.CANCELLED, actor="test")


def ask_to_stop(session: Session) -> None:
    job = session.get_one(Job, "job-runs")
    job.requested = "cancel"
    job.mark_changed()


ACTED_ON: dict[str, Callable[[Session], object]] = {
    "a job is submitted": lambda session: make_job(session, state=JobState.PENDING),
    "a job changes its state": cancel,
    "a job is asked to stop": ask_to_stop,
    "an attempt is dispatched": lambda session: make_attempt(
        session, session.get_one(Job, "job-waits"), session.get_one(Node, "n1"), device_indices=(1,), claimed=False
    ),
    "a supervisor registers": lambda session: session.execute(update(Lease).values(supervisor_pid=7)),
    "a lease is released": lambda session: session.execute(update(Lease).values(released_at=utc_now())),
    "an inspection is requested": lambda session: session.add(Inspection(id="another", project="default")),
    "an inspection ends": lambda session: session.execute(update(Inspection).values(state="done")),
    "an event is to be delivered": lambda session: session.execute(update(WebhookDelivery).values(state="waiting")),
    "a node comes": lambda session: make_node(session, "n2"),
    "a node is drained": lambda session: session.execute(update(Node).values(state="draining")),
    "a node gets a label": lambda session: session.execute(update(Node).values(admin_labels=["ssd"])),
    "a device goes": lambda session: session.execute(delete(Device).where(Device.index == 1)),
    "a device is stuck": lambda session: session.add(
        StuckDevice(node="n1", device_index=3, job_id="job-x", attempt=1, since=utc_now(), seen_at=utc_now())
    ),
    "a node is blamed": lambda session: session.add(
        NodeFault(node="n1", job_id="job-x", attempt=1, cause="OOM", at=utc_now())
    ),
    "a queue is paused": lambda session: session.execute(update(Queue).values(is_paused=True)),
    "a service is made": lambda session: make_service(session, "second"),
    "a service is paused": lambda session: session.execute(update(Service).values(status="PAUSED", version=2)),
    "a batch is made": lambda session: make_batch(session, id="batch-2"),
    "a batch is cancelled": lambda session: session.execute(update(Batch).values(status="cancelling")),
    "a quota changes": lambda session: session.execute(update(Project).values(quota={"max_running_jobs": 1})),
}


@pytest.mark.parametrize("what", ACTED_ON)
def test_what_needs_an_action_is_seen_once(database: Database, counter: ChangeCounter, what: str) -> None:
    with database.write() as session:
        ACTED_ON[what](session)

    assert counter.has_changed()
    assert not counter.has_changed()


def test_what_happens_all_the_time_is_not_counted(database: Database, counter: ChangeCounter) -> None:
    planner.beat(database, "coordinator@here", "here:boot:1:1")
    planner.renew(database, "here:boot:1:1")
    registry.heartbeat(database, "n1")
    (lease,) = leases.live(database)
    with database.write() as session:
        session.execute(update(Lease).values(counter=Lease.counter + 1, renewed_at=utc_now()))
        session.execute(update(Job).values(progress=0.5, current_step=7, latest_metrics={"loss": 1.0}))
        session.execute(update(Job).values(pending_reason="waits", mirrored_version=1))
        session.execute(update(Service).values(requested_at=utc_now()))

    assert not counter.has_changed()
    assert leases.live(database) != [lease]


def test_each_reader_has_its_own_view(database: Database, counter: ChangeCounter) -> None:
    other = settled(ChangeCounter(database))

    with database.write() as session:
        make_job(session)

    assert (counter.has_changed(), other.has_changed()) == (True, True)


def test_a_change_that_is_committed_late_is_not_missed(database: Database, counter: ChangeCounter) -> None:
    """On PostgreSQL the counter has moved before the change is visible."""
    with database.write() as session:
        make_job(session)
        session.flush()
        early = [counter.has_changed() for _ in range(3)]

    assert counter.has_changed()
    assert not counter.has_changed()
    assert early == [database.engine.dialect.name == "postgresql"] * 3


def test_what_was_rolled_back_delays_nothing(database: Database, counter: ChangeCounter) -> None:
    def fail_after_counting() -> None:
        with database.write() as session:
            make_job(session)
            session.flush()
            counter.has_changed()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_counting()

    counter.has_changed()
    assert not counter.has_changed()


def test_after_a_failed_reading_everything_may_have_changed(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'new.db'}")
    counter = ChangeCounter(Database().bind(engine))
    with pytest.raises(OperationalError):
        counter.has_changed()
    upgrade(engine)
    settled(counter)

    with engine.execution_options(writes=True).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE change RENAME TO away")
    with pytest.raises(OperationalError):
        counter.has_changed()
    with engine.execution_options(writes=True).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO change")

    assert counter.has_changed()
    engine.dispose()


def test_a_table_without_its_row_counts_as_changed(database: Database, counter: ChangeCounter) -> None:
    if database.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL counts in a sequence")
    with database.write() as session:
        session.connection().exec_driver_sql("DELETE FROM change")

    assert [counter.has_changed() for _ in range(2)] == [True, True]
