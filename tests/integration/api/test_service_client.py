"""The client's calls about services against the real API over real HTTP: answers are typed."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from app.models import Service
from app.models.base import utc_now
from app.services.serving import usage
from app.services.serving.usage import UsageCounts, UsageKey
from tests.builders.service_requests import service_request
from tests.builders.serving import make_replica
from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard import records
from trainyard.client import Client, Conflict, InvalidRequest, NotFound


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield served.client()


def assert_is(record: Mapping[str, Any], kind: Any) -> None:
    """The answer has every promised field, and no other."""
    assert kind.__required_keys__ == set(record)


def test_a_service_is_created_once_and_read(client: Client) -> None:
    plan = client.services.dry_run(service_request())
    created = client.services.create(service_request(), idempotency_key="once")
    assert client.services.create(service_request(), idempotency_key="once") == created
    shown = client.services.get("support")

    for record, kind in ((plan, records.DryRun), (created, records.CreatedService), (shown, records.Service)):
        assert_is(record, kind)
    assert shown["service_id"] == created["service_id"]
    assert list(client.services.list(status=["ACTIVE"], name="support")) == [shown]


def test_a_service_is_changed_paused_resumed_and_deleted(client: Client) -> None:
    service_id = client.services.create(service_request())["service_id"]

    assert client.services.scale("support", max=3)["replicas"]["max"] == 3
    assert client.services.change("support", defaults={"temperature": 0.5})["defaults"] == {"temperature": 0.5}
    assert client.services.pause("support")["status"] == "PAUSED"
    assert client.services.wait("support", poll_seconds=0.01)["status"] == "PAUSED"
    assert client.services.resume("support")["status"] == "ACTIVE"
    client.services.delete("support")

    assert client.services.get(service_id)["status"] in ("ENDING", *records.SERVICE_TERMINAL)
    events = list(client.services.events(service_id))
    assert_is(events[0], records.ServiceEvent)
    assert events[0]["type"] == "service.created"


def test_replicas_metrics_and_logs_are_typed(client: Client, api: Api) -> None:
    service_id = client.services.create(service_request())["service_id"]
    with api.db.write() as session:
        make_replica(session, session.get_one(Service, service_id))

    replica = next(client.services.replicas("support"))
    metrics = client.services.metrics("support", names=["waiting"], max_points=10)

    assert_is(replica, records.Replica)
    assert (replica["number"], replica["status"], replica["answers"]) == (0, "QUEUED", False)
    assert_is(metrics, records.ServiceMetrics)
    assert_is(metrics["now"], records.ServedLoad)
    assert metrics["replicas"] == {"0": {}}
    assert client.services.logs("support", tail=5, replica=0) == []
    assert client.services.get("support")["starting"] == 1


def test_waiting_ends_at_the_deadline(client: Client) -> None:
    client.services.create(service_request())

    with pytest.raises(TimeoutError, match="no replica of support answers"):
        client.services.wait("support", timeout_seconds=0.05, poll_seconds=0.01)


def test_events_are_followed_to_the_end_of_a_service(client: Client, api: Api) -> None:
    service_id = client.services.create(service_request())["service_id"]
    with api.db.write() as session:
        service = session.get_one(Service, service_id)
        service.status, service.ended_at = "ENDED", utc_now()

    assert [event.data["type"] for event in client.services.follow_events(service_id)] == ["service.created"]


def test_usage_is_typed(client: Client, api: Api) -> None:
    where = UsageKey(day=utc_now().date(), key_id="key-1", model="support", project="default", service_id="service-1")
    usage.add(api.db, {where: UsageCounts(requests=1, prompt_tokens=3, completion_tokens=4)})

    (row,) = client.services.usage(group=["model", "day"], since="2026-01-01")

    assert_is(row, records.Usage)
    assert (row["model"], row["key_id"], row["completion_tokens"]) == ("support", None, 4)


def test_refusals_are_typed_and_name_the_field(client: Client) -> None:
    client.services.create(service_request())

    with pytest.raises(InvalidRequest) as caught:
        client.services.create(service_request(name="other", replicas={"min": 3, "max": 2}))
    with pytest.raises(Conflict):
        client.services.create(service_request())
    with pytest.raises(NotFound):
        client.services.get("none")

    assert caught.value.details[0]["field"] == "replicas.min"
