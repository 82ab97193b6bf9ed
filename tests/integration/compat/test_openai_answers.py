"""Chat, completions and embeddings by OpenAI's own client, through the API, a gateway and a relay, to an engine."""

import http.client
import json
import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from app.database.engine import Database
from app.domain.errors import LimitExceeded
from app.security.permissions import Role
from tests.integration.compat.openai_client import client_of
from tests.systems.apps import Api
from tests.systems.gateways import GatewaySite
from tests.systems.servers import free_port
from tests.systems.system import wait_for

HELLO: Any = [{"role": "user", "content": "say hello you"}]
CHAT = {"model": "support", "messages": HELLO}


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[GatewaySite]:
    """A gateway with an engine for text and one for vectors."""
    (tmp_path / "gateway").mkdir()
    found = GatewaySite(database, tmp_path / "gateway", TRAINYARD_GATEWAY_REQUESTS_PER_MINUTE="100")
    for name, task in (("support", "generate"), ("vectors", "embed")):
        _, place = found.engine(name)
        found.replica(found.service(name, task=task), place)
    yield found.serve()
    found.close()


@pytest.fixture
def api_of(site: GatewaySite, database: Database, tmp_path: Path) -> Iterator[Api]:
    """An API that hands requests on to the gateway."""
    (tmp_path / "api").mkdir()
    found = Api(database, tmp_path / "api", TRAINYARD_GATEWAY_URL=f"http://127.0.0.1:{site.port}")
    yield found
    found.close()


@pytest.fixture
def client(api_of: Api, monkeypatch: pytest.MonkeyPatch) -> openai.OpenAI:
    return client_of(api_of, monkeypatch, api_key=api_of.make_key(Role.INFERENCE), max_retries=0)[0]


def test_client_gets_an_answer_with_the_rates_of_its_key(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="support", messages=HELLO)

    assert raw.parse().choices[0].message.content == "hello you"
    assert raw.headers["x-ratelimit-limit-requests"] == "100"
    assert raw.headers["x-request-id"].startswith("req_")


def test_client_gets_a_stream_with_its_usage(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="support", messages=HELLO, stream=True, stream_options=options))

    assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices] == ["hello", "you"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 3


def test_client_gets_completions_and_vectors(client: openai.OpenAI) -> None:
    completion = client.completions.with_raw_response.create(model="support", prompt="say yes")
    vectors = client.embeddings.with_raw_response.create(model="vectors", input="say something")

    assert (completion.status_code, vectors.status_code) == (200, 200)


def test_stream_arrives_as_it_is_made(api_of: Api, site: GatewaySite) -> None:
    engine, place = site.engine("slow", pause_seconds=0.3)
    site.replica(site.service("slow"), place)

    answer = api_of.call("POST", "/v1/chat/completions", json={**CHAT, "model": "slow", "stream": True}, buffered=False)
    first = next(iter(answer.response))

    assert answer.mimetype == "text/event-stream"
    assert b"hello" in first
    assert b"[DONE]" not in first
    answer.close()
    wait_for(lambda: engine.hung_up, seconds=10, what="the engine has noticed that the client has gone")


@pytest.mark.long
def test_client_that_hangs_up_frees_the_engine(api_of: Api, site: GatewaySite) -> None:
    engine, place = site.engine("hanging")
    site.replica(site.service("hanging"), place)
    here, there = socket.socketpair()
    there.close()
    body = {"model": "hanging", "messages": [{"role": "user", "content": "hang"}]}

    with here:
        answer = api_of.call("POST", "/v1/chat/completions", json=body, environ_overrides={"gunicorn.socket": here})

    assert answer.status_code == 503
    wait_for(lambda: engine.hung_up, seconds=10, what="the engine has noticed that the client has gone")


def test_requests_of_a_project_to_models_are_bounded(api_of: Api) -> None:
    answers = api_of.app.extensions["trainyard"].answers
    taken = 0
    try:
        while taken < 1000:
            answers.take("default")
            taken += 1
    except LimitExceeded:
        key = api_of.make_key(Role.INFERENCE)
        refused = api_of.call("POST", "/v1/chat/completions", json=CHAT, key=key, buffered=True)
    for _ in range(taken):
        answers.give_back("default")

    assert taken >= 40
    assert "requests to models" in refused.get_data(as_text=True)
    assert refused.status_code == 429
    assert "Retry-After" in refused.headers
    assert api_of.call("POST", "/v1/chat/completions", json=CHAT, key=key, buffered=True).status_code == 200


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"messages": []}, "messages"),
    ("chat/completions", {"messages": [{"role": "poet", "content": "x"}]}, "messages.0.role"),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages.0.content.0.type",
    ),
    ("chat/completions", {"temperature": 3}, "temperature"),
    ("chat/completions", {"n": 0}, "n"),
    (
        "chat/completions",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "thing"}}}},
        "response_format.json_schema.schema.type",
    ),
    ("completions", {"prompt": "x", "logprobs": 6}, "logprobs"),
    ("embeddings", {"input": []}, "input"),
]


@pytest.mark.parametrize(("path", "bad", "param"), BAD)
def test_bad_requests_are_refused_with_the_field(sqlite_api: Api, path: str, bad: dict[str, Any], param: str) -> None:
    base = CHAT if path.startswith("chat") else {"model": "support"}
    answer = sqlite_api.call("POST", f"/v1/{path}", json={**base, **bad})

    assert answer.status_code == 400
    assert answer.json is not None
    error = answer.json["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"].startswith(param)


def test_models_that_are_not_there_are_refused_with_those_that_are(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nothing", messages=HELLO)
    with pytest.raises(openai.NotFoundError) as place:
        client.chat.completions.create(model="org/model", messages=HELLO)

    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert "services: support, vectors" in str(unknown.value)
    assert place.value.code == "model_not_served"
    assert "trainyard serve org/model" in str(place.value)


def test_without_a_gateway_requests_are_refused_for_a_while(sqlite_api: Api, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    away = Api(sqlite_api.db, tmp_path / "other", TRAINYARD_GATEWAY_URL=url)
    for api, why in ((sqlite_api, "TRAINYARD_GATEWAY_URL"), (away, "does not answer")):
        answer = api.call("POST", "/openai/v1/chat/completions", json=CHAT)

        assert answer.status_code == 503
        assert answer.json is not None
        assert why in answer.json["error"]["message"]
        assert (answer.json["error"]["type"], answer.json["error"]["code"]) == ("server_error", "no_gateway")
        assert (answer.headers["Retry-After"], answer.headers["X-Should-Retry"]) == ("5", "true")
    away.close()


def test_bodies_are_as_large_as_gateways_take_them(api_of: Api) -> None:
    limit = api_of.app.extensions["trainyard"].settings.gateway.max_body_bytes
    large = {"model": "support", "messages": [{"role": "user", "content": "say " + "x" * (2 << 20)}]}
    too_large = b'{"model": "support", "messages": [' + b" " * limit + b"]}"

    answer = api_of.call("POST", "/v1/chat/completions", json=large, buffered=True)
    refused = api_of.call("POST", "/v1/chat/completions", data=too_large, headers={"Content-Type": "application/json"})

    assert answer.status_code == 200, answer.text[:200]
    assert refused.status_code == 413
    assert str(limit) in refused.json["error"]["message"]  # type: ignore[index] # it has a body


def test_viewers_may_not_ask(sqlite_api: Api) -> None:
    key = sqlite_api.make_key(Role.VIEWER)

    assert sqlite_api.call("POST", "/v1/chat/completions", json=CHAT, key=key, buffered=True).status_code == 403


def test_services_are_models(api_of: Api) -> None:
    answer = api_of.call("GET", "/v1/models").json
    one = api_of.call("GET", "/v1/models/support").json

    assert answer is not None
    assert one in answer["data"]
    assert {model["id"]: model["trainyard"]["kind"] for model in answer["data"]} == {
        "support": "service",
        "vectors": "service",
    }
    asked = api_of.call("GET", "/v1/models", key=api_of.make_key(Role.INFERENCE)).json
    assert asked is not None
    assert {model["id"] for model in asked["data"]} == {"support", "vectors"}
    assert one is not None
    assert one["trainyard"] == {"kind": "service", "base": "base-of-support", "job_id": None, "task": "generate"}


@contextmanager
def scripted_gateway(answer: bytes) -> Iterator[str]:
    """The URL of a server that reads one request, sends this, and closes; without anything to send it waits."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while not connection.recv(1 << 16).endswith(b"}"):
                    pass
                if answer:
                    connection.sendall(answer)
                else:
                    connection.recv(1)  # until the client closes it

        done = pool.submit(serve)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        done.result(timeout=10)


def test_answer_that_breaks_off_is_not_handed_on_as_a_whole_one(sqlite_api: Api, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    with scripted_gateway(head + b'{"id": "x"') as url:
        api = Api(sqlite_api.db, tmp_path / "cut", TRAINYARD_GATEWAY_URL=url)
        answer = api.call("POST", "/v1/chat/completions", json=CHAT, buffered=False)
        parts = iter(answer.response)
        assert next(parts) == b'{"id": "x"'
        with pytest.raises(http.client.IncompleteRead):
            next(parts)
        answer.close()
    api.close()


def test_stream_that_breaks_off_ends_with_an_error(
    sqlite_api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "lost").mkdir()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    with scripted_gateway(head + b'10\r\ndata: {"id": 1}\n\r\nA\r\n\ndata: {"i\r\n') as url:
        api = Api(sqlite_api.db, tmp_path / "lost", TRAINYARD_GATEWAY_URL=url)
        answer = api.call("POST", "/v1/chat/completions", json={**CHAT, "stream": True}, buffered=True)
    api.close()

    first, last, rest = answer.get_data().split(b"\n\n")
    assert (first, rest) == (b'data: {"id": 1}', b"")
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "gateway_lost"
    assert [each.message for each in caplog.records if "has broken off within an answer" in each.message]


def test_gateway_that_is_silent_is_given_up(sqlite_api: Api, tmp_path: Path) -> None:
    (tmp_path / "silent").mkdir()
    with scripted_gateway(b"") as url:
        more = {"TRAINYARD_GATEWAY_URL": url, "TRAINYARD_GATEWAY_SILENCE_SECONDS": "0.2"}
        api = Api(sqlite_api.db, tmp_path / "silent", **more)
        answer = api.call("POST", "/v1/chat/completions", json=CHAT, buffered=True)
    api.close()

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"


def test_an_api_with_many_open_files_hands_requests_on(api_of: Api) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened, Path(os.devnull).open() as file:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            opened.callback(os.close, os.dup(file.fileno()))
        answer = api_of.call("POST", "/v1/chat/completions", json=CHAT, buffered=True)

    assert answer.status_code == 200
