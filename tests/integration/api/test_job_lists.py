"""Lists of jobs: every filter by itself and together, orders under change, counts that stop counting."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import TERMINAL, JobState
from app.migrations.runner import upgrade
from app.security.permissions import Role
from app.services.jobs import listing
from app.services.lifecycle import labels as job_labels
from app.services.requests import pagination
from tests.builders.factories import make_document, make_job
from tests.systems.apps import Api
from tests.systems.servers import PostgresServer

pytestmark = pytest.mark.both_databases

START = datetime(2026, 5, 1, tzinfo=UTC)
LORA: dict[str, Any] = {"training_config": {"training_type": "LORA"}}
FILTERED = [
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
    ("finished_after=2026-05-01T04:30:00Z", ["e"]),
    ("finished_after=2026-05-01T01:00:00Z&finished_before=2026-05-01T06:00:00%2B02:00", ["c", "b"]),
    ("labels.team=x&finished_after=2026-05-01T00:00:00Z", ["e"]),
    ("labels.team=x", ["e", "ab", "a"]),
    ("labels.team=x&labels.run/id=1", ["ab"]),
    ("labels.team=x&labels.team=y", []),
    ("labels.none=1", []),
    ("labels.team=", []),
    ("labels.team=x&status=PENDING&queue=default&name=a", ["a"]),
]

PAGED = [
    "order_by=name",
    "order_by=-priority&status=COMPLETED",
    "order_by=status",
    "name=a",
    "training_type=SFT&queue=default",
    "labels.team=x",
    "labels.team=x&order_by=-name",
    "labels.team=x&status=PENDING,TRAINING",
    "labels.team=x&labels.run/id=1&name=a",
    "labels.team=x&queue=default&project=default",
]


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
                session,
                state=state,
                document=make_document(name=name, **changes),
                labels=labels,
                created_at=START + timedelta(hours=hours),
                finished_at=START + timedelta(hours=hours, minutes=30) if state in TERMINAL else None,
                parent_job_id=parent if name == "c" else None,
                **columns,
            )
            parent = job.id
            session.add_all(job_labels.rows(job))
    return api


def names(api: Api, query: str, **request: Any) -> list[str]:
    return [job["name"] for job in api.get(f"/v1/jobs?{query}", **request)["jobs"]]


def test_lists_are_filtered_and_ordered(listed: Api):
    for query, expected in FILTERED:
        page = listed.get(f"/v1/jobs?{query}")
        assert ([job["name"] for job in page["jobs"]], page["total_count"]) == (expected, len(expected)), query


def test_many_jobs_are_listed_as_few_are(listed: Api, monkeypatch: pytest.MonkeyPatch):
    few = {query: pages_of_one(listed, query) for query in PAGED}
    monkeypatch.setattr(pagination, "COUNT_LIMIT", 0)
    for name in ("FEW", "FEW_OF_A_NAME"):
        monkeypatch.setattr(listing, name, 0)

    assert [] not in few.values()
    for query in PAGED:
        assert pages_of_one(listed, query) == few[query], query


def test_a_label_and_a_status_follow_the_job(api: Api):
    job_id = api.submit(name="mine", labels={"team": "x"})
    api.submit(name="other", labels={"team": "x"})
    waiting = names(api, "labels.team=x&status=PENDING")
    api.data(api.post(f"/v1/jobs/{job_id}/cancel"))
    ended = [names(api, f"labels.team=x&status={status}") for status in ("CANCELLED", "PENDING", "FAILED,PENDING")]

    assert waiting == ["other", "mine"]
    assert ended == [["mine"], ["other"], ["other"]]
    assert names(api, "labels.team=x&status=CANCELLED,PENDING") == ["other", "mine"]


def test_labels_that_are_changed_are_found_with_everything_else(api: Api):
    job_id = api.submit(name="mine", labels={"team": "x"}, **LORA)

    api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"labels": {"team": "y"}}))

    every_filter = "status=PENDING&training_type=LORA&framework=HF_TRAINER&queue=default&project=default"
    assert names(api, f"labels.team=y&{every_filter}&created_after=2026-01-01T00:00:00Z&order_by=-priority") == ["mine"]
    assert names(api, "labels.team=x") == []


def test_a_name_begins_with_any_characters(api: Api):
    with api.db.write() as session:
        for name in (
            "z",
            "zz",
            "z\U0010ffff",
            "z\U0010ffffa",
            "\U0010ffff",
            "\ud7ffx",
            "\ue000",
            "Éa",
            "éa",
            "{",
            "%",
            "a",
        ):
            make_job(session, document=make_document(name=name))

    for prefix, expected in [
        ("z", ["z", "zz", "z\U0010ffff", "z\U0010ffffa"]),
        ("z\U0010ffff", ["z\U0010ffff", "z\U0010ffffa"]),
        ("\U0010ffff", ["\U0010ffff"]),
        ("\ud7ff", ["\ud7ffx"]),
        ("É", ["Éa"]),
        ("%", ["%"]),
    ]:
        assert names(api, f"name={quote(prefix)}&order_by=name") == expected, prefix


def test_names_are_sorted_by_their_bytes_whatever_the_database_does_otherwise(
    postgres_server: PostgresServer, tmp_path: Path
):
    postgres_server.execute("CREATE DATABASE icu TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
    db = Database().bind(make_engine(postgres_server.url("icu")))
    upgrade(db.engine)
    with db.write() as session:
        for name in ("b", "B", "a b", "ab", "Éa"):
            make_job(session, document=make_document(name=name))

    listed = names(Api(db, tmp_path), "order_by=name")

    db.close()
    postgres_server.execute("DROP DATABASE icu WITH (FORCE)")
    assert listed == ["B", "a b", "ab", "b", "Éa"]


def pages_of_one(api: Api, query: str) -> list[str]:
    """The list's names, each from a page of its own."""
    found: list[str] = []
    token = ""
    while True:
        page = api.get(f"/v1/jobs?{query}&page_size=1&page_token={token}")
        found += [job["name"] for job in page["jobs"]]
        token = page["next_page_token"]
        if not token:
            return found


def test_children_are_found_by_their_parent(listed: Api):
    parent = next(job for job in listed.get("/v1/jobs")["jobs"] if job["name"] == "b")

    assert names(listed, f"parent_job_id={parent['job_id']}") == ["c"]
    assert len(parent["child_job_ids"]) == 1


def test_every_filter_keeps_to_the_callers_project(listed: Api):
    user = listed.make_key(Role.USER)

    assert names(listed, "labels.team=x", key=user) == ["ab", "a"]
    assert names(listed, "status=COMPLETED", key=user) == ["A", "b"]
    assert listed.call("GET", "/v1/jobs?project=other", key=user).status_code == 404


def test_filters_that_mean_nothing_are_refused(sqlite_api: Api):
    for query in [
        "status=RUNNING",
        "status=",
        "training_type=",
        "framework=TORCH",
        "created_after=yesterday",
        "created_before=2026-05-01",
        "order_by=id",
        "order_by=--name",
        "order_by=",
        "page_size=0",
        "page_size=101",
        "page_size=1.5",
        "labels.=1",
        "labels.a%20b=1",
        "labels=1",
        "state=FAILED",
        "queue=a&queue=b",
        "name=",
    ]:
        assert sqlite_api.call("GET", f"/v1/jobs?{query}").status_code == 422, query


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
    monkeypatch.setattr(pagination, "COUNT_LIMIT", 3)
    capped = api.get("/v1/jobs?page_size=1")

    assert (exact["total_count"], "total_count_capped" in exact) == (4, False)
    assert (capped["total_count"], capped["total_count_capped"]) == (3, True)
