"""Errors, headers and filters as OpenAI's clients know them, and which refusals they must not repeat."""

import pytest
from flask import Flask, Response

from app.compat.openai.dialect import BASE, MOST_SECONDS_TO_WAIT, OPENAI
from app.compat.openai.fine_tuning.schemas import FineTuningJobsQuerySchema
from app.http.dialect import NATIVE
from app.http.envelope import Problem
from app.http.errors import BadShape
from app.http.request_body import validated

ERRORS = [
    (400, "INVALID_ARGUMENT", 400, "invalid_request_error", "invalid_argument", None),
    (401, "AUTH_TOKEN_MISSING", 401, "authentication_error", "invalid_api_key", None),
    (403, "AUTHZ_PERMISSION_DENIED", 403, "permission_error", "authz_permission_denied", None),
    (403, "STORAGE_QUOTA_EXCEEDED", 403, "insufficient_quota", "insufficient_quota", "false"),
    (404, "MODEL_NOT_FOUND", 404, "not_found_error", "model_not_found", None),
    (409, "INVALID_STATE", 409, "invalid_request_error", "invalid_state", "false"),
    (422, "VALIDATION_ERROR", 400, "invalid_request_error", "validation_error", None),
    (429, "RATE_LIMITED", 429, "rate_limit_error", "rate_limit_exceeded", None),
    (429, "QUOTA_EXCEEDED", 429, "insufficient_quota", "insufficient_quota", "false"),
    (500, "INTERNAL", 500, "server_error", "internal", None),
    (501, "NOT_IMPLEMENTED", 501, "invalid_request_error", "not_built", "false"),
    (503, "UNAVAILABLE", 503, "server_error", "unavailable", None),
]


@pytest.mark.parametrize(("status", "code", "answered", "kind", "shown", "repeated"), ERRORS)
def test_an_error_has_the_type_and_code_that_clients_know(
    status: int, code: str, answered: int, kind: str, shown: str, repeated: str | None
):
    answer = OPENAI.failure(Problem(status, code, "too few", details=[("n", "too few")]))

    assert answer.status_code == answered
    assert answer.json == {"error": {"message": "n: too few", "type": kind, "param": "n", "code": shown}}
    assert answer.headers.get("X-Should-Retry") == repeated


@pytest.mark.parametrize(("said", "shown"), [("120", str(MOST_SECONDS_TO_WAIT)), ("7", "7")])
def test_nobody_is_told_to_wait_for_long(said: str, shown: str):
    answer = Response(headers={"Retry-After": said})
    with Flask("x").test_request_context(headers={"OpenAI-Organization": "acme"}):
        OPENAI.finish(answer)

    assert answer.headers["Retry-After"] == shown
    assert answer.headers["OpenAI-Organization"] == "acme"


COUNTS = {
    ("POST", "1"): True,
    ("POST", "12"): True,
    ("POST", "0"): False,
    ("POST", "²"): False,
    ("POST", ""): False,
    ("POST", "-1"): False,
    ("GET", "1"): None,
}


@pytest.mark.parametrize(("method", "count"), COUNTS)
def test_a_count_says_that_a_post_is_repeated(method: str, count: str):
    with Flask("x").test_request_context(method=method, headers={"X-Stainless-Retry-Count": count}):
        assert OPENAI.is_repeat() is COUNTS[method, count]


def test_the_longest_base_decides_and_only_one_prefix_is_described():
    assert {path: len(OPENAI.base_of(path)) > len(NATIVE.base_of(path)) for path in ("/v1/files", "/v1/jobs")} == {
        "/v1/files": True,
        "/v1/jobs": False,
    }
    assert OPENAI.base_of("/v1/filesystems") == ""
    assert [OPENAI.link_base(path) for path in ("/v1/files/x", f"{BASE}/files/x")] == ["/v1", BASE]
    assert [OPENAI.describes(path) for path in ("/v1/files", f"{BASE}/files")] == [False, True]


@pytest.mark.parametrize(
    ("query", "metadata"),
    [({}, None), ({"metadata[team]": "a", "metadata[b]": ""}, {"team": "a", "b": ""}), ({"metadata": "null"}, "null")],
)
def test_list_is_filtered_by_metadata(query: dict[str, str], metadata: object) -> None:
    assert validated(FineTuningJobsQuerySchema(), query).get("metadata") == metadata


@pytest.mark.parametrize("query", [{"metadata": "a"}, {"metadata": "null", "metadata[a]": "b"}, {"limit": "0"}])
def test_filters_that_mean_nothing_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadShape):
        validated(FineTuningJobsQuerySchema(), query)
