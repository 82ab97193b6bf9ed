"""Searching the log of a job over HTTP, by the client and by `trainyard logs --grep`."""

from collections.abc import Iterator

import pytest

from app.security.permissions import Role
from app.storage.log_writer import LogWriter
from tests.builders.log_blocks import block
from tests.systems.apps import Api
from tests.systems.served import serving
from trainyard.client import Client, InvalidRequest

FIRST, SECOND = "2030-01-01T10:00:00.000Z", "2030-01-01T11:00:00.000Z"


@pytest.fixture
def job_id(api: Api) -> str:
    """A job with lines of two ranks and two hours."""
    job_id = api.submit()
    lines = [
        block(1, "step 1", "Error: a", at=FIRST),
        block(3, "error: b", rank=1, at=SECOND),
        block(4, "end", at=SECOND),
    ]
    LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1).append(lines)
    return job_id


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with serving(api) as served:
        yield Client(served.url, api.key)


def found(api: Api, job_id: str, query: str) -> list[str]:
    return [line["line"] for line in api.get(f"/v1/jobs/{job_id}/logs?{query}")["lines"]]


def test_lines_are_found_by_text_pattern_time_rank_and_attempt(api: Api, job_id: str):
    assert found(api, job_id, "q=error") == ["Error: a", "error: b"]
    assert found(api, job_id, "pattern=^error") == ["error: b"]
    assert found(api, job_id, f"from={SECOND}") == ["error: b", "end"]
    assert found(api, job_id, f"to={FIRST}&q=error") == ["Error: a"]
    assert found(api, job_id, "q=error&rank=1") == ["error: b"]
    assert found(api, job_id, "attempt=1&limit=1") == ["step 1"]
    assert found(api, job_id, "attempt=2") == []


def test_a_search_answers_json_whatever_is_accepted_and_says_where_it_continues(api: Api, job_id: str):
    headers = {"Accept": "text/event-stream"}

    part = api.get(f"/v1/jobs/{job_id}/logs?q=error&limit=1", headers=headers)
    rest = api.get(f"/v1/jobs/{job_id}/logs?q=error&after={part['next']}", headers=headers)

    assert [line["id"] for line in part["lines"]] == ["1:2"]
    assert (part["next"], part["searched"]) == ("1:2", 2)
    assert [line["line"] for line in rest["lines"]] == ["error: b"]
    assert (rest["next"], rest["searched"]) == (None, 2)


@pytest.mark.parametrize(
    ("query", "field", "status"),
    [
        ("pattern=(", "pattern", 400),
        ("pattern=a(?=b)", "pattern", 400),
        ("from=yesterday", "from", 422),
        ("after=1", "after", 422),
        ("after=1:x", "after", 422),
        ("limit=0", "limit", 422),
        ("limit=1001", "limit", 422),
        ("q=x&tail=5", "tail", 400),
        ("attempt=0", "attempt", 422),
    ],
)
def test_a_search_that_is_none_is_refused(api: Api, job_id: str, query: str, field: str, status: int):
    answer = api.call("GET", f"/v1/jobs/{job_id}/logs?{query}")

    problem = api.problem(answer, status)
    assert problem["details"][0]["field"] == field


def test_a_foreign_log_cannot_be_searched(api: Api, job_id: str):
    other = api.make_key(Role.ADMIN, "other")

    api.problem(api.call("GET", f"/v1/jobs/{job_id}/logs?q=error", key=other), 404)


def test_the_client_finds_lines_of_all_parts(client: Client, job_id: str):
    assert [line["line"] for line in client.search_logs(job_id, text="ERROR")] == ["Error: a", "error: b"]
    assert [line["n"] for line in client.search_logs(job_id, pattern="o", since=SECOND)] == [3]
    assert [line["n"] for line in client.search_logs(job_id)] == [1, 2, 3, 4]
    with pytest.raises(InvalidRequest):
        list(client.search_logs(job_id, pattern="("))
