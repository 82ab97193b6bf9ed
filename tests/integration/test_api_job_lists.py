"""Lists of jobs: every filter by itself and together, orders under change, counts that stop counting."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.job_state import JobState
from app.models import JobLabel
from app.security.permissions import Role
from app.services import pages
from tests.apps import Api
from tests.factories import make_document, make_job

START = datetime(2026, 5, 1, tzinfo=UTC)
LORA = {"training_config": {"training_type": "LORA"}}


@pytest.fixture
def listed(api: Api) -> Api:
    """Six jobs, an hour apart; e is of another project."""
    rows: list[tuple[str, JobState, dict[str, Any], dict[str, str], dict[str, Any]]] = [
        ("a", JobState.PENDING, {}, {"team": "x"}, {}),
        ("ab", JobState.TRAINING, {"queue": "gpu"}, {"team": "x", "run/id": "1"}, {}),
        ("b", JobState.COMPLETED, {"priority": 9}, {"team": "y"}, LORA),
        ("c", JobState.FAILED, {"priority": 1}, {}, {}),
        ("A", JobState.COMPLETED, {}, {"run/id": "1"}, {}),
        ("e", JobState.COMPLETED, {"project": "other"}, {"team": "x"}, {}),
    ]
    with api.db.write() as session:
        parent = None
        for hours, (name, state, columns, labels, changes) in enumerate(rows):
            job = make_job(
                session, state=state, document=make_document(name=name, **changes), labels=labels,
                created_at=START + timedelta(hours=hours), parent_job_id=parent if name == "c" else None, **columns,
            )  # fmt: skip
            parent = job.id
            session.add_all(JobLabel(job_id=job.id, key=key, value=value) for key, value in labels.items())
    return api


def names(api: Api, query: str, **request: Any) -> list[str]:
    return [job["name"] for job in api.get(f"/v1/jobs?{query}", **request)["jobs"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("order_by=created_at", ["a", "ab", "b", "c", "A", "e"]),
        ("", ["e", "A", "c", "b", "ab", "a"]),
        ("order_by=name", ["A", "a", "ab", "b", "c", "e"]),
        ("order_by=-priority&status=COMPLETED&project=default", ["b", "A"]),
        ("order_by=priority&project=default&name=c", ["c"]),
        ("order_by=status&project=default&status=FAILED,PENDING", ["c", "a"]),
        ("status=TRAINING&status=FAILED", ["c", "ab"]),
        ("queue=gpu", ["ab"]),
        ("project=other", ["e"]),
        ("name=a", ["ab", "a"]),
        ("name=ab", ["ab"]),
        ("name=%25", []),
        ("name=_", []),
        ("training_type=LORA", ["b"]),
        ("training_type=SFT&framework=HF_TRAINER&name=c", ["c"]),
        ("created_after=2026-05-01T03:00:00Z", ["e", "A"]),
        ("created_before=2026-05-01T01:00:00.000Z", ["a"]),
        ("created_after=2026-05-01T01:00:00Z&created_before=2026-05-01T05:30:00%2B02:00", ["c", "b"]),
        ("labels.team=x", ["e", "ab", "a"]),
        ("labels.team=x&labels.run/id=1", ["ab"]),
        ("labels.team=x&labels.team=y", []),
        ("labels.none=1", []),
        ("labels.team=", []),
        ("labels.team=x&status=PENDING&queue=default&name=a", ["a"]),
    ],
)
def test_filters_and_orders(listed: Api, query: str, expected: list[str]):
    found = names(listed, query)

    # Databases sort by their own collation; what is asked of them is that a page follows a page.
    assert (sorted(found) if query == "order_by=name" else found) == expected
    assert listed.get(f"/v1/jobs?{query}")["total_count"] == len(expected)


def test_children_are_found_by_their_parent(listed: Api):
    parent = next(job for job in listed.get("/v1/jobs")["jobs"] if job["name"] == "b")

    assert names(listed, f"parent_job_id={parent['job_id']}") == ["c"]
    assert len(parent["child_job_ids"]) == 1


def test_every_filter_keeps_to_the_callers_project(listed: Api):
    user = listed.make_key(Role.USER)

    assert names(listed, "labels.team=x", key=user) == ["ab", "a"]
    assert names(listed, "status=COMPLETED", key=user) == ["A", "b"]
    assert listed.call("GET", "/v1/jobs?project=other", key=user).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "status=RUNNING", "status=", "training_type=", "framework=TORCH", "created_after=yesterday",
        "created_before=2026-05-01", "order_by=id", "order_by=--name", "order_by=", "page_size=0", "page_size=101",
        "page_size=1.5", "labels.=1", "labels.a%20b=1", "labels=1", "state=FAILED", "queue=a&queue=b", "name=",
    ],
)  # fmt: skip
def test_filters_that_mean_nothing_are_refused(sqlite_api: Api, query: str):
    assert sqlite_api.call("GET", f"/v1/jobs?{query}").status_code == 422


@pytest.mark.parametrize("order", ["created_at", "-created_at", "name", "-name", "priority", "-priority", "status"])
def test_pages_lose_and_repeat_nothing_while_jobs_come_and_go(api: Api, order: str):
    with api.db.write() as session:
        old = [make_job(session, document=make_document(name=f"j{n % 3}"), priority=n % 4).id for n in range(9)]

    seen: list[str] = []
    token = ""
    for _ in range(5):
        page = api.get(f"/v1/jobs?page_size=2&order_by={order}&page_token={token}")
        seen += [job["job_id"] for job in page["jobs"]]
        token = page["next_page_token"]
        api.submit(name="j1", scheduling_config={"priority": 2})

    assert len(seen) == len(set(seen)) == 10 if token else set(old) <= set(seen)
    rest = []
    while token:
        page = api.get(f"/v1/jobs?page_size=100&order_by={order}&page_token={token}")
        rest += [job["job_id"] for job in page["jobs"]]
        token = page["next_page_token"]
    assert set(old) <= set(seen + rest)
    assert len(seen + rest) == len(set(seen + rest))


def test_count_stops_at_its_limit_and_says_so(api: Api, monkeypatch: pytest.MonkeyPatch):
    with api.db.write() as session:
        for _ in range(4):
            make_job(session)

    exact = api.get("/v1/jobs?page_size=1")
    monkeypatch.setattr(pages, "COUNT_LIMIT", 3)
    capped = api.get("/v1/jobs?page_size=1")

    assert (exact["total_count"], "total_count_capped" in exact) == (4, False)
    assert (capped["total_count"], capped["total_count_capped"]) == (3, True)
