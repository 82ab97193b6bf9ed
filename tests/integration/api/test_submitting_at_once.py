"""A submission that is one guarded statement stores and answers what a whole transaction does, or leaves it to one."""

import random
from typing import Any

import pytest
from sqlalchemy import select

from app.models import AuditEntry, Base, Job, JobEvent, JobLabel, Project, Queue, WebhookDelivery
from app.security.permissions import Role
from app.services.access import api_keys
from tests.builders.factories import make_document, make_project, make_webhook
from tests.builders.statements import statements
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

# What differs between two jobs of the same document.
OWN = ("id", "job_id", "event_id", "target", "request_id", "at", "created_at", "updated_at", "next_try_at", "payload")
# The reply to a request with a key is stored in the transaction that stores the job, which is then the long way.
LONG_WAY = {"Idempotency-Key": "any"}


def document_by(chance: random.Random) -> dict[str, Any]:
    """One of those that are accepted, or refused by what the database has."""
    document = make_document(
        labels={f"label{number}": "ä '%s" for number in range(chance.randrange(3))},
        scheduling_config={"queue": chance.choice(["default", "default", "narrow", "none"]), "priority": 7},
    )
    document["training_config"]["environment"] = chance.choice([{}, {"HF_TOKEN": "secret"}, {"PLAIN": "%(rows)s"}])
    if chance.random() < 0.3:
        document["output_config"] = {"checkpoint": {"save_on_each_node": True}}
    if chance.random() < 0.1:
        document["training_config"]["resume_from_checkpoint"] = "ckpt-missing"
    return document


def rows_of(api: Api, job_id: str) -> list[list[dict[str, Any]]]:
    """Every row that a submission writes, without what is its own."""
    asked = (
        select(Job).where(Job.id == job_id),
        select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.seq),
        select(AuditEntry).where(AuditEntry.target == job_id),
        select(JobLabel).where(JobLabel.job_id == job_id).order_by(JobLabel.key),
        select(WebhookDelivery).where(
            WebhookDelivery.event_id.in_(select(JobEvent.id).where(JobEvent.job_id == job_id))
        ),
    )
    with api.db.read() as session:
        return [[columns_of(row) for row in session.scalars(each)] for each in asked]


def columns_of(row: Base) -> dict[str, Any]:
    found = {column.name: getattr(row, column.name) for column in row.__table__.columns if column.name not in OWN}
    return {**found, "sealed_secrets": bool(found.get("sealed_secrets"))}


def outcome(api: Api, document: dict[str, Any], key: str, **request: Any) -> tuple[int, Any, list[Any]]:
    answer = api.post("/v1/jobs", document, key=key, **request)
    said = answer.get_json()
    if answer.status_code != 201:
        return answer.status_code, said["error"], []
    job_id = said["data"].pop("job_id")
    return 201, said["data"], rows_of(api, job_id)


@pytest.mark.parametrize("seed", range(40))
def test_both_ways_store_and_answer_the_same(api: Api, seed: int) -> None:
    chance = random.Random(seed)
    key = api.make_key(Role.USER)
    with api.db.write() as session:
        session.add(Queue(name="narrow", max_waiting_jobs=chance.choice([0, 50])))
        session.get_one(Project, "default").quota = chance.choice([{}, {}, {"max_waiting_jobs": 50}, {"cpu": 0}])
        if chance.random() < 0.2:
            make_webhook(session)
    if chance.random() < 0.1:
        api_keys.revoke(api.db, api_keys.authenticate(api.db, api.key), api_keys.authenticate(api.db, key).key_id)
    document = document_by(chance)

    assert outcome(api, document, key) == outcome(api, document, key, headers=LONG_WAY)


def test_request_with_an_idempotency_key_takes_a_whole_transaction(api: Api) -> None:
    key = api.make_key(Role.USER)
    outcome(api, make_document(), key)  # notes the use of the key

    with statements(api.db, of_writers=True) as sent:
        outcome(api, make_document(), key, headers=LONG_WAY)

    assert sent[0].startswith("SELECT queue.name AS queue")


def test_guard_that_holds_a_job_back_leaves_no_row_of_it(api: Api) -> None:
    key = api.make_key(Role.USER)
    with api.db.write() as session:
        session.add(Queue(name="narrow", max_waiting_jobs=0))

    status, error, _ = outcome(api, make_document(scheduling_config={"queue": "narrow"}, labels={"a": "b"}), key)

    assert (status, error["code"]) == (429, "QUOTA_EXCEEDED")
    with api.db.read() as session:
        assert not session.scalars(select(Job)).all()
        assert not session.scalars(select(JobLabel)).all()
        assert not session.scalars(select(AuditEntry).where(AuditEntry.action == "job.submit")).all()


def test_key_of_one_project_submits_nothing_to_another(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "foreign")
    key = api.make_key(Role.USER)

    assert api.post("/v1/jobs?project=foreign", make_document(), key=key).status_code == 404
