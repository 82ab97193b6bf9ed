"""The client's calls about inference jobs against the real API over real HTTP: answers are typed."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard import records
from trainyard.client import Client, InvalidRequest, NotFound

DOCUMENT = {
    "name": "label",
    "model": {"model_uri": "/srv/models/tiny"},
    "data_config": {"sources": [{"path": "/srv/data/train.jsonl"}]},
    "resource_config": {"device_type": "cpu"},
}


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield served.client()


def assert_is(record: Mapping[str, Any], kind: Any) -> None:
    """The answer has every promised field, and no other."""
    assert kind.__required_keys__ == set(record)


def test_batch_is_created_once_and_read(client: Client) -> None:
    plan = client.inference.dry_run(DOCUMENT)
    created = client.inference.create(DOCUMENT, idempotency_key="once", tokens={"user": "token"})
    assert client.inference.create(DOCUMENT, idempotency_key="once", tokens={"user": "token"}) == created
    shown = client.inference.get(created["job_id"])

    for record, kind in ((plan, records.DryRun), (created, records.CreatedInference), (shown, records.InferenceJob)):
        assert_is(record, kind)
    assert (shown["kind"], shown["task"]["type"], shown["records"]) == ("batch", "generate", 0)
    assert client.cancel(created["job_id"]).is_terminal


def test_jobs_are_listed_by_kind(client: Client) -> None:
    batch = client.inference.create(DOCUMENT)["job_id"]
    features = client.inference.create({**DOCUMENT, "kind": "features"})["job_id"]

    assert [each["job_id"] for each in client.inference.list()] == [features, batch]
    assert [each["job_id"] for each in client.inference.list(kind="features", project="default")] == [features]
    assert [each["job_id"] for each in client.inference.list(status=["CANCELLED"])] == []
    assert [each.job_id for each in client.list(kind="batch")] == [batch]


def test_refusals_are_typed_and_name_the_field(client: Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.inference.create({**DOCUMENT, "task": {"temperature": 3}})
    with pytest.raises(NotFound):
        client.inference.get("job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11")

    assert caught.value.details[0]["field"] == "task.temperature"
