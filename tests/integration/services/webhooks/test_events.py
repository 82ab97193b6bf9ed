"""Deliveries come into being with their events, in one transaction, and cost nothing where there are no webhooks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.models import JobEvent, Webhook, WebhookDelivery
from app.services.lifecycle import transitions
from tests.builders.factories import make_job, make_webhook

pytestmark = pytest.mark.both_databases


@contextmanager
def statements(db: Database) -> Iterator[list[str]]:
    """Everything that is said to the database meanwhile."""
    said: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        said.append(statement)

    event.listen(db.engine, "before_cursor_execute", note)
    yield said
    event.remove(db.engine, "before_cursor_execute", note)


def warn(session: Session, job_id: str) -> JobEvent:
    return transitions.record_event(session, job_id, EventType.WARNING, actor="test", message="look", data={"n": 1})


def deliveries(db: Database) -> list[WebhookDelivery]:
    with db.read() as session:
        return list(session.query(WebhookDelivery).order_by(WebhookDelivery.id))


def test_event_is_on_its_way_with_what_the_api_shows_and_its_job(database: Database) -> None:
    with database.write() as session:
        job = make_job(session, name="first", labels={"team": "a"})
        hook = make_webhook(session)
        transitions.transition(session, job, JobState.PAUSED, actor="key-1", reason="paused", message="lunch")
        row = session.query(JobEvent).one()

    (delivery,) = deliveries(database)

    assert (delivery.webhook_id, delivery.event_id, delivery.event_type) == (hook.id, row.id, "job.status")
    assert (delivery.state, delivery.tries, delivery.next_try_at) == ("waiting", 0, None)
    assert delivery.payload == {
        "event": {
            "id": row.id,
            "seq": 1,
            "at": row.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "type": "job.status",
            "from_status": "QUEUED",
            "to_status": "PAUSED",
            "actor": "key-1",
            "reason": "paused",
            "message": "lunch",
            "data": {},
        },
        "job": {
            "job_id": job.id,
            "project": "default",
            "name": "first",
            "labels": {"team": "a"},
            "status": "PAUSED",
            "queue": "default",
            "training_type": "SFT",
            "framework": "HF_TRAINER",
            "attempt": 0,
        },
    }


def test_history_event_is_delivered_like_a_state_change(database: Database) -> None:
    with database.write() as session:
        job = make_job(session)
        make_webhook(session)
        warn(session, job.id)

    (delivery,) = deliveries(database)

    assert delivery.event_type == "job.warning"
    assert (delivery.payload["event"]["message"], delivery.payload["event"]["data"]) == ("look", {"n": 1})
    assert delivery.payload["job"]["status"] == "QUEUED"


def test_only_active_subscribed_webhooks_of_the_project_are_notified(database: Database) -> None:
    with database.write() as session:
        job = make_job(session)
        expected = [make_webhook(session).id, make_webhook(session, event_types=["job.warning", "FAILED"]).id]
        make_webhook(session, event_types=["FAILED", "job.status"])
        make_webhook(session, is_active=False)
        make_webhook(session, project="other")
        warn(session, job.id)

    assert sorted(delivery.webhook_id for delivery in deliveries(database)) == sorted(expected)


def test_rolled_back_event_is_not_delivered(database: Database) -> None:
    with database.write() as session:
        job = make_job(session)
        make_webhook(session)

    with database.write() as session:
        warn(session, job.id)
        session.flush()
        session.rollback()

    assert deliveries(database) == []


def test_without_webhooks_an_event_costs_no_statement_more(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session).id
        make_webhook(session, project="other")
        make_webhook(session, is_active=False)

    with database.write() as session, statements(database) as said:
        warn(session, job_id)
        session.flush()

    assert [statement.split()[0] for statement in said if statement != "BEGIN IMMEDIATE"] == ["UPDATE", "INSERT"]


def test_without_webhooks_a_transition_costs_no_statement_more(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session).id

    with database.write() as session:
        job = transitions.load_for_change(session, job_id)
        with statements(database) as said:
            transitions.transition(session, job, JobState.PAUSED, actor="test")
            session.flush()

    assert [statement for statement in said if "webhook" in statement and not statement.startswith("UPDATE job")] == []


def test_webhook_that_is_deleted_at_the_same_moment_does_not_harm_the_event(
    database: Database, database_url: str
) -> None:
    with database.write() as session:
        job_id = make_job(session).id
        hook_id = make_webhook(session).id
    deleting = threading.Thread(target=_delete, args=(database, hook_id))

    with database.write() as session:
        warn(session, job_id)
        deleting.start()
        # PostgreSQL lets the other one begin; it waits for us, and takes what we wrote along.
        session.flush()
    deleting.join(10)

    assert deliveries(database) == []
    with database.read() as session:
        assert session.query(JobEvent).count() == 1
        assert session.get(Webhook, hook_id) is None


def _delete(db: Database, hook_id: str) -> None:
    with db.write() as session:
        session.delete(session.get_one(Webhook, hook_id))
