"""The client's calls about evaluations against the real API over real HTTP: answers are typed."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard import records
from trainyard.client import Client, Conflict, InvalidRequest, NotFound

DOCUMENT = {
    "model": {"model_uri": "/srv/models/tiny"},
    "benchmarks": [{"name": "perplexity", "dataset": "/srv/data/train.jsonl"}],
    "resource_config": {"device_type": "cpu"},
}


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield served.client()


def assert_is(record: Mapping[str, Any], kind: Any) -> None:
    """The answer has every promised field, and no other."""
    assert kind.__required_keys__ == set(record)


def test_evaluation_is_created_once_read_and_deleted(client: Client) -> None:
    plan = client.evaluations.dry_run(DOCUMENT)
    created = client.evaluations.create(DOCUMENT, idempotency_key="once", tokens={"user": "token"})
    assert client.evaluations.create(DOCUMENT, idempotency_key="once", tokens={"user": "token"}) == created
    evaluation_id = created["evaluation_id"]
    shown = client.evaluations.get(evaluation_id)

    for record, kind in ((plan, records.DryRun), (created, records.CreatedEvaluation), (shown, records.Evaluation)):
        assert_is(record, kind)
    assert shown["benchmarks"][0]["name"] == "perplexity"
    assert [each["evaluation_id"] for each in client.evaluations.list(project="default")] == [evaluation_id]
    assert list(client.evaluations.list(job_id="job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11")) == []
    assert client.evaluations.cancel(evaluation_id, reason="enough")["status"] == "CANCELLED"
    assert client.evaluations.wait(evaluation_id)["status"] == "CANCELLED"
    client.evaluations.delete(evaluation_id)
    with pytest.raises(NotFound):
        client.evaluations.get(evaluation_id)


def test_refusals_are_typed_and_name_the_field(client: Client) -> None:
    running = client.evaluations.create(DOCUMENT)["evaluation_id"]
    other = client.evaluations.create(DOCUMENT)["evaluation_id"]

    with pytest.raises(InvalidRequest) as caught:
        client.evaluations.create(
            {**DOCUMENT, "benchmarks": [{"name": "perplexety", "dataset": "/srv/data/train.jsonl"}]}
        )
    with pytest.raises(Conflict, match="can't be compared"):
        client.evaluations.compare([running, other])
    with pytest.raises(TimeoutError, match=f"evaluation {running} has not ended within"):
        client.evaluations.wait(running, timeout_seconds=0.05, poll_seconds=0.01)

    assert caught.value.details[0]["field"] == "benchmarks.0.name"
