"""The same request twice at once: the slower one gets the faster one's answer, not an error."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.http import idempotency
from tests.builders.factories import make_document
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

HEADERS = {"Idempotency-Key": "once"}


def overtaken(api: Api, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]) -> list[TestResponse]:
    """The answers to a request and to the same one, sent after the first looked for an answer and before its work."""
    begin, faster = idempotency.begin, []

    def begin_slowly(document: dict[str, Any], **more: Any) -> Any:
        earlier = begin(document, **more)
        monkeypatch.setattr(idempotency, "begin", begin)
        with ThreadPoolExecutor(1) as other:
            faster.append(other.submit(api.post, path, body, headers=HEADERS).result())
        return earlier

    monkeypatch.setattr(idempotency, "begin", begin_slowly)
    slower = api.post(path, body, headers=HEADERS)
    return [*faster, slower]


@pytest.mark.parametrize(("path", "name"), [("/v1/projects", "team-b"), ("/v1/queues", "night")])
def test_what_is_made_twice_at_once_is_answered_twice(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    faster, slower = overtaken(api, monkeypatch, path, {"name": name})

    assert api.data(slower, 201) == api.data(faster, 201)
    assert slower.headers["Idempotency-Replayed"] == "true"


def test_a_key_rotated_twice_at_once_is_shown_to_both(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    old = api.data(api.post("/v1/keys", {"name": "ci"}), 201)["key_id"]

    faster, slower = overtaken(api, monkeypatch, f"/v1/keys/{old}/rotate", {})

    assert api.data(slower, 201)["key"] == api.data(faster, 201)["key"]


def test_the_last_place_in_a_queue_is_not_refused_to_who_got_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.data(api.call("PATCH", "/v1/queues/default", json={"max_waiting_jobs": 1}))

    faster, slower = overtaken(api, monkeypatch, "/v1/jobs", make_document())

    assert api.data(slower, 201)["job_id"] == api.data(faster, 201)["job_id"]


def test_without_a_key_the_second_is_refused(api: Api) -> None:
    api.data(api.post("/v1/projects", {"name": "team-b"}), 201)

    assert api.problem(api.post("/v1/projects", {"name": "team-b"}), 409)["code"] == "CONFLICT"
