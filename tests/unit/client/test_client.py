"""The client against a small real HTTP server with scripted answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_server import ScriptedServer, drop, failure, running, stream, success
from tests.systems.servers import free_port
from trainyard.client import ApiError, Client, ClientError, Unreachable


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with running() as server:
        yield server


@pytest.fixture
def client(server: ScriptedServer) -> Client:
    return Client(server.url, "the-key")


def test_submit_sends_key_document_and_idempotency_key(server: ScriptedServer, client: Client) -> None:
    server.script(success({"job_id": "job-1", "status": "PENDING", "message": "m", "estimated_wait_seconds": 2}, 201))

    answer = client.submit({"name": "a"})

    method, path, headers, body = server.seen[0]
    assert (method, path, json.loads(body)) == ("POST", "/v1/jobs", {"name": "a"})
    assert headers["Authorization"] == "Bearer the-key"
    assert headers["Idempotency-Key"]
    assert (answer.job_id, answer.status, answer.estimated_wait_seconds) == ("job-1", "PENDING", 2)


def test_a_broken_submission_is_sent_again_under_the_same_idempotency_key(
    server: ScriptedServer, client: Client
) -> None:
    server.script(drop, success({"job_id": "job-1", "status": "PENDING"}, 201))

    assert client.submit({"name": "a"}).job_id == "job-1"

    assert server.seen[0][2]["Idempotency-Key"] == server.seen[1][2]["Idempotency-Key"]


def test_a_refusal_carries_code_message_and_details(server: ScriptedServer, client: Client) -> None:
    details = [{"field": "data_config.sources.0.path", "message": "not under a configured root"}]
    server.script(failure(422, {"code": "VALIDATION_ERROR", "message": "2 problems", "details": details}))

    with pytest.raises(ApiError, match=r"data_config.sources.0.path: not under") as caught:
        client.submit({})

    error = caught.value
    assert (error.status, error.code, error.details, error.request_id) == (422, "VALIDATION_ERROR", details, "req_2")


def test_an_answer_of_another_server_is_a_client_error(server: ScriptedServer, client: Client) -> None:
    server.script(
        lambda handler: handler.reply(200, b"<html>", "text/html"), lambda handler: handler.reply(502, b"bad gateway")
    )

    with pytest.raises(ClientError, match="did not answer like a Trainyard server"):
        client.get("job-1")
    with pytest.raises(ApiError, match="502"):
        client.get("job-1")


@pytest.mark.long
def test_url_without_a_listener_is_unreachable_and_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(Unreachable, match=url):
        Client(url).get("job-1")


def test_an_invalid_url_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="ftp://"):
        Client("ftp://example.org")


def test_the_key_is_not_carried_along_a_redirect(server: ScriptedServer, client: Client) -> None:
    server.script(lambda handler: handler.reply(302, b"", Location="http://127.0.0.1:1/"))

    with pytest.raises(ApiError) as caught:
        client.get("job-1")

    assert caught.value.status == 302
    assert len(server.seen) == 1


def test_get_returns_typed_fields_and_the_whole_document(server: ScriptedServer, client: Client) -> None:
    server.script(success({"job_id": "job-1", "name": "n", "status": "TRAINING", "total_steps": None, "queue": "q"}))

    job = client.get("job/1")

    assert server.seen[0][1] == "/v1/jobs/job%2F1"
    assert (job.status, job.total_steps, job.is_terminal, job.data["queue"]) == ("TRAINING", None, False, "q")


def test_list_goes_through_all_pages(server: ScriptedServer, client: Client) -> None:
    server.script(
        success({"jobs": [{"job_id": "job-2", "name": "b", "status": "QUEUED"}], "next_page_token": "t&2"}),
        success({"jobs": [{"job_id": "job-1", "name": "a", "status": "QUEUED"}], "next_page_token": ""}),
    )

    jobs = list(client.list(status=["QUEUED", "PAUSED"], labels={"team": "x"}, queue="default"))

    assert [job.job_id for job in jobs] == ["job-2", "job-1"]
    assert "status=QUEUED&status=PAUSED&labels.team=x" in server.seen[0][1]
    assert "queue=default" in server.seen[0][1]
    assert "page_token=t%262" in server.seen[1][1]


def test_string_in_place_of_a_list_is_one_item(server: ScriptedServer, client: Client) -> None:
    server.script(success({"jobs": [], "next_page_token": ""}), success({"latest": {}, "series": {}}))

    assert list(client.list(status="QUEUED")) == []
    client.metrics("job-1", names="loss")

    assert "status=QUEUED&" in server.seen[0][1]
    assert "names=loss" in server.seen[1][1]


def test_cancel_posts_the_reason(server: ScriptedServer, client: Client) -> None:
    server.script(success({"job_id": "job-1", "name": "n", "status": "TRAINING", "requested": "cancel"}))

    job = client.cancel("job-1", reason="enough")

    assert (server.seen[0][1], json.loads(server.seen[0][3])) == ("/v1/jobs/job-1/cancel", {"reason": "enough"})
    assert job.requested == "cancel"


def test_a_stream_ends_when_the_server_says_so(server: ScriptedServer, client: Client) -> None:
    server.script(stream(': hello\n\nid: 1\ndata: {"n": 1}\n\nid: 2\ndata: {"n":\ndata: 2}\n\ndata: [DONE]\n\n'))

    events = list(client.follow_logs("job-1", rank=0))

    assert [(event.id, event.data) for event in events] == [("1", {"n": 1}), ("2", {"n": 2})]
    assert server.seen[0][2]["Accept"] == "text/event-stream"
    assert server.seen[0][1] == "/v1/jobs/job-1/logs?follow=true&rank=0"


def test_a_broken_stream_continues_after_the_last_event(server: ScriptedServer, client: Client) -> None:
    server.script(
        stream('id: 1:7\ndata: {"n": 1}\n\nid: 1:8\ndata: {"unfinis'),
        drop,
        failure(503, {"code": "UNAVAILABLE", "message": "the database is away"}),
        stream('id: 1:8\ndata: {"n": 2}\n\ndata: [DONE]\n\n'),
    )

    events = list(client.follow_events("job-1"))

    assert [event.data["n"] for event in events] == [1, 2]
    assert [headers.get("Last-Event-ID") for *_, headers, _ in server.seen] == [None, "1:7", "1:7", "1:7"]


def test_an_error_inside_a_stream_is_tried_again(server: ScriptedServer, client: Client) -> None:
    server.script(
        stream('event: error\ndata: {"code":"UNAVAILABLE","message":"the database is away"}\n\n'),
        stream("data: [DONE]\n\n"),
    )

    assert list(client.follow_metrics("job-1")) == []


def test_a_stream_that_is_refused_is_not_tried_again(server: ScriptedServer, client: Client) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": "no job job-1"}))

    with pytest.raises(ApiError, match="no job job-1"):
        list(client.follow_logs("job-1"))

    assert len(server.seen) == 1


def test_wait_survives_a_server_that_is_away_for_a_moment(server: ScriptedServer, client: Client) -> None:
    server.script(
        success({"job_id": "job-1", "name": "n", "status": "TRAINING"}),
        drop,
        success({"job_id": "job-1", "name": "n", "status": "COMPLETED"}),
    )

    assert client.wait("job-1", poll_seconds=0.01).status == "COMPLETED"


def test_wait_gives_up_in_time(server: ScriptedServer, client: Client) -> None:
    server.script(success({"job_id": "job-1", "name": "n", "status": "TRAINING"}))

    with pytest.raises(TimeoutError, match="job-1"):
        client.wait("job-1", timeout_seconds=0.05, poll_seconds=0.01)


def test_download_leaves_only_the_complete_file(server: ScriptedServer, client: Client, tmp_path: Path) -> None:
    server.script(lambda handler: handler.reply(200, b"weights", "application/octet-stream"))

    saved = client.download("job-1", "model/a b.safetensors", tmp_path / "weights")

    assert server.seen[0][1] == "/v1/jobs/job-1/artifacts/model/a%20b.safetensors"
    assert saved.read_bytes() == b"weights"
    assert list(tmp_path.iterdir()) == [saved]


def test_a_download_that_breaks_leaves_no_file_of_that_name(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    server.script(lambda handler: handler.reply(200, b"wei", "application/octet-stream", **{"Content-Length": "7"}))

    with pytest.raises(Unreachable, match="3 of 7 bytes"):
        client.download("job-1", "model.safetensors", tmp_path / "weights")

    assert not (tmp_path / "weights").exists()


@pytest.mark.long
@pytest.mark.parametrize("status", [429, 503])
def test_wait_and_submit_wait_for_a_server_that_is_busy(server: ScriptedServer, client: Client, status: int) -> None:
    busy = failure(status, {"code": "UNAVAILABLE", "message": "later", "retry_after": 0})
    job = {"job_id": "job-1", "name": "n", "status": "COMPLETED"}
    server.script(busy, success(job, 201), busy, busy, success(job))

    assert client.submit({}).job_id == "job-1"
    assert client.wait("job-1", poll_seconds=0.01).is_terminal

    assert len(server.seen) == 5


@pytest.mark.parametrize("error", [{"retry_after": 3600}, {}])
def test_a_refusal_that_will_not_pass_soon_is_not_waited_for(
    server: ScriptedServer, client: Client, error: dict[str, int]
) -> None:
    server.script(failure(429, {"code": "LIMIT_EXCEEDED", "message": "enough", **error}))

    with pytest.raises(ApiError, match="enough"):
        client.submit({})
    with pytest.raises(ApiError, match="enough"):
        client.wait("job-1")
