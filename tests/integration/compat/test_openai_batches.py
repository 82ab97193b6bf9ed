"""Batches by OpenAI's own client, in one process with the server."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from app.domain.lifecycle.states import JobState
from app.models import Batch, BatchJob
from app.security.permissions import Role
from tests.builders.batches import CHAT, lines_of, make_batch, request_line
from tests.builders.factories import make_job
from tests.integration.compat.openai_client import client_of
from tests.systems.apps import Api

BATCHES = "/v1/batches"
ASKED: Any = {"endpoint": CHAT, "completion_window": "24h"}


def uploaded(client: openai.OpenAI, purpose: Any = "batch") -> str:
    return client.files.create(file=("requests.jsonl", lines_of([request_line("a")])), purpose=purpose).id


def test_batch_is_created_listed_read_and_cancelled(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(sqlite_api, monkeypatch)
    file_id = uploaded(client)
    asked: Any = {"input_file_id": file_id, **ASKED}

    made = client.batches.create(**asked, metadata={"team": "red"})
    others = [client.batches.create(**asked).id for _ in range(4)]
    listed = [batch.id for batch in client.batches.list(limit=2)]  # of all pages
    cancelled = client.batches.cancel(made.id)
    read = client.batches.retrieve(made.id)

    assert (made.object, made.status, made.input_file_id, made.endpoint) == ("batch", "validating", file_id, CHAT)
    assert (made.completion_window, made.metadata, made.errors) == ("24h", {"team": "red"}, None)
    assert made.expires_at == made.created_at + 86400
    assert made.request_counts is not None
    assert made.request_counts.total == 0
    assert listed == [*reversed(others), made.id]
    assert (cancelled.status, read.status) == ("cancelling", "cancelling")
    assert read.cancelling_at is not None


def test_expiry_of_files_window_and_parts_of_jobs_are_kept(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(sqlite_api, monkeypatch)
    window: Any = "72h"
    parts = {"resource_config": {"gpu_count": 2}, "output": {"shard_records": 64}, "scheduling_config": {"priority": 3}}

    made = client.batches.create(
        input_file_id=uploaded(client),
        endpoint="/v1/embeddings",
        completion_window=window,
        output_expires_after={"anchor": "created_at", "seconds": 3600},
        extra_body={"trainyard": parts},
    )

    assert made.completion_window == "72h"
    with sqlite_api.db.read() as session:
        row = session.get_one(Batch, made.id)
    assert (row.window_seconds, row.output_expires_seconds) == (72 * 3600, 3600)
    assert row.parts["resource_config"]["gpu_count"] == 2
    assert row.parts["scheduling_config"]["priority"] == 3
    assert row.parts["output"] == {"shard_records": 64}


def test_jobs_files_and_problems_are_shown(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(sqlite_api, monkeypatch)
    problem = {"code": "model_not_found", "message": "no model x", "param": "body.model", "line": 2}
    with sqlite_api.db.write() as session:
        failed = make_batch(session, status="failed", problems=[problem]).id
        running = make_batch(session, status="in_progress", models={"a": 1, "b": 2}, pending_reason="waits").id
        session.add_all(BatchJob(batch_id=running, model=name, job_id=f"job-{name}", requests=1) for name in "ab")

    errors = client.batches.retrieve(failed).errors
    found = client.batches.retrieve(running)

    assert errors is not None
    assert [each.to_dict() for each in errors.data or []] == [problem]
    assert found.model is None
    assert found.model_extra == {"trainyard": {"pending_reason": "waits", "jobs": {"a": "job-a", "b": "job-b"}}}
    assert [each.id for each in client.batches.list()] == [running, failed]


def test_batch_whose_jobs_wait_says_why_the_oldest_does(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(api, monkeypatch)
    with api.db.write() as session:
        batch_id = make_batch(session, status="in_progress", models={"a": 1, "b": 1, "c": 1}).id
        states = {"a": JobState.TRAINING, "b": JobState.QUEUED, "c": JobState.QUEUED}
        jobs = {name: make_job(session, state=state) for name, state in states.items()}
        for name, job in jobs.items():
            job.pending_reason = f"{name} needs 1 CPU slot"
            session.add(BatchJob(batch_id=batch_id, model=name, job_id=job.id, requests=1))

    shown: Any = [client.batches.retrieve(batch_id), *client.batches.list()]

    assert [each.trainyard["pending_reason"] for each in shown] == ["b needs 1 CPU slot"] * 2


@pytest.mark.both_databases
def test_request_whose_answer_is_lost_makes_one_batch(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, connection = client_of(api, monkeypatch)
    asked: Any = {"input_file_id": uploaded(client), **ASKED}

    twice = [client.batches.create(**asked).id for _ in range(2)]
    connection.losing = 2
    cut = client.batches.create(**asked).id
    connection.losing = 1
    cancelled = client.batches.cancel(cut)

    assert [batch.id for batch in client.batches.list()] == [cut, *reversed(twice)]
    assert len({cut, *twice}) == 3
    assert cancelled.status == "cancelling"
    assert client.batches.cancel(cut).status == "cancelling"  # it is asked again, and is already


@pytest.mark.both_databases
def test_equal_requests_at_once_that_repeat_one_make_one_batch(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(api, monkeypatch)
    body = {"input_file_id": uploaded(client), "endpoint": CHAT, "completion_window": "24h"}

    def ask(count: int) -> str:
        answer = api.post(BATCHES, body, headers={"x-stainless-retry-count": str(count)})
        assert answer.json is not None
        return str(answer.json["id"])

    with ThreadPoolExecutor(4) as threads:
        ids = set(threads.map(ask, [1, 2, 1, 2]))

    assert len(ids) == 1
    assert [batch.id for batch in client.batches.list()] == [*ids]


def test_batches_of_another_project_are_not_there(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha, _ = client_of(sqlite_api, monkeypatch, api_key=sqlite_api.make_key(Role.USER, "alpha"))
    beta, _ = client_of(sqlite_api, monkeypatch, api_key=sqlite_api.make_key(Role.USER, "beta"))
    file_id = uploaded(alpha)
    made = alpha.batches.create(input_file_id=file_id, **ASKED)

    for refused in (
        lambda: beta.batches.retrieve(made.id),
        lambda: beta.batches.cancel(made.id),
        lambda: beta.batches.create(input_file_id=file_id, **ASKED),
    ):
        with pytest.raises(openai.NotFoundError):
            refused()
    assert list(beta.batches.list()) == []


GOOD = {"input_file_id": "FILE", "endpoint": CHAT, "completion_window": "24h"}
BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "nothing": ({}, 400, "input_file_id"),
    "no file": ({**GOOD, "input_file_id": "file-00000000-0000-7000-8000-000000000000"}, 404, "input_file_id"),
    "not the id of a file": ({**GOOD, "input_file_id": "x"}, 404, "input_file_id"),
    "a file of another purpose": ({**GOOD, "input_file_id": "OTHER"}, 400, "input_file_id"),
    "no endpoint": ({"input_file_id": "FILE", "completion_window": "24h"}, 400, "endpoint"),
    "an endpoint that is not built": ({**GOOD, "endpoint": "/v1/responses"}, 400, "endpoint"),
    "an endpoint of another list": ({**GOOD, "endpoint": "/v1/files"}, 400, "endpoint"),
    "no window": ({"input_file_id": "FILE", "endpoint": CHAT}, 400, "completion_window"),
    "no hours": ({**GOOD, "completion_window": "0h"}, 400, "completion_window"),
    "days": ({**GOOD, "completion_window": "1d"}, 400, "completion_window"),
    "a number": ({**GOOD, "completion_window": 24}, 400, "completion_window"),
    "too many hours": ({**GOOD, "completion_window": "721h"}, 400, "completion_window"),
    "17 pairs": ({**GOOD, "metadata": {str(number): "x" for number in range(17)}}, 400, "metadata"),
    "a pair that is a number": ({**GOOD, "metadata": {"a": 1}}, 400, "metadata.a"),
    "an expiry without seconds": (
        {**GOOD, "output_expires_after": {"anchor": "created_at"}},
        400,
        "output_expires_after.seconds",
    ),
    "an expiry of a minute": (
        {**GOOD, "output_expires_after": {"anchor": "created_at", "seconds": 60}},
        400,
        "output_expires_after.seconds",
    ),
    "an unknown field": ({**GOOD, "model": "tiny"}, 400, "model"),
    "an unknown section": ({**GOOD, "trainyard": {"data_config": {}}}, 400, "trainyard.data_config"),
    "no devices": (
        {**GOOD, "trainyard": {"resource_config": {"gpu_count": -1}}},
        400,
        "trainyard.resource_config.gpu_count",
    ),
    "an unknown queue": (
        {**GOOD, "trainyard": {"scheduling_config": {"queue": "nowhere"}}},
        400,
        "trainyard.scheduling_config.queue",
    ),
    "a shard of no records": (
        {**GOOD, "trainyard": {"output": {"shard_records": 0}}},
        400,
        "trainyard.output.shard_records",
    ),
}


def test_bad_request_is_refused_by_the_name_of_its_field(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = client_of(sqlite_api, monkeypatch)
    files = {"FILE": uploaded(client), "OTHER": uploaded(client, "user_data")}

    for name, (body, status, param) in BAD.items():
        named = {field: files.get(value, value) if isinstance(value, str) else value for field, value in body.items()}
        answer = sqlite_api.post(BATCHES, named)
        assert answer.status_code == status, (name, answer.text)
        assert answer.json is not None
        assert answer.json["error"]["param"] == param, (name, answer.text)

    assert list(client.batches.list()) == []


def test_bad_lists_and_commands_are_refused(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, connection = client_of(sqlite_api, monkeypatch)
    with sqlite_api.db.write() as session:
        ended = make_batch(session, status="completed").id

    with pytest.raises(openai.BadRequestError) as no_page:
        client.batches.list(after="x")
    with pytest.raises(openai.BadRequestError):
        client.batches.list(limit=101)
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch-x")
    with pytest.raises(openai.ConflictError) as refused:
        client.batches.cancel(ended)

    assert no_page.value.param == "after"
    assert refused.value.code == "invalid_state"
    assert connection.sent[-1].headers["x-stainless-retry-count"] == "0"  # a conflict is not repeated
