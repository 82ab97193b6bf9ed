"""Lists in foreign vocabularies with more jobs than they read at once: what is requested is still found."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.compat import every_job
from app.compat.ome.api import events
from app.domain.lifecycle.states import JobState
from app.security.permissions import Role
from app.services.lifecycle import labels
from tests.builders.factories import make_document, make_job, make_project
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

WORKLOADS = "/api/v1/workloads"
SEARCHES = "/v2/default/training-job-searches"
OME = "/apis/ome.io/v1beta1/namespaces/default"
EVENTS = "/api/v1/namespaces/default/events"
START = datetime(2026, 5, 1, tzinfo=UTC)


def said(answer: TestResponse) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json


@pytest.fixture
def many(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Eight jobs, an hour apart, where a list reads three: the first ones differ from each other."""
    monkeypatch.setattr(every_job, "MAX_JOBS", 3)
    made_a_model = {"report": {"model_hash": "abc", "model_uri": "file:///srv/files/model"}}
    rows: list[tuple[str, JobState, dict[str, Any]]] = [
        ("found", JobState.FAILED, {"created_by": "key-of-x", "labels": {"team": "x"}, "attempt": 1}),
        ("100%_x", JobState.QUEUED, {}),
        ("Found", JobState.CANCELLED, {}),
        ("theirs", JobState.COMPLETED, {"project": "other", **made_a_model}),
        *((f"new-{number}", JobState.COMPLETED, made_a_model) for number in range(4)),
    ]
    with api.db.write() as session:
        make_project(session, "other")
        for hours, (name, state, columns) in enumerate(rows):
            made = START + timedelta(hours=hours)
            job = make_job(session, state=state, document=make_document(name=name), created_at=made, **columns)
            session.add_all(labels.rows(job))
    return api


def test_workloads_are_found_among_very_many(many: Api) -> None:
    for query, names in [
        ("", ["new-3", "new-2", "new-1"]),
        ("sortOrder=asc", ["found", "100%_x", "Found"]),
        ("sortBy=name", ["100%_x", "Found", "found"]),
        ("sortBy=name&sortOrder=desc&limit=2", ["theirs", "new-3"]),
        ("filterBy=phase==Failed", ["found"]),
        ("filterBy=name==found", ["found"]),
        ("filterBy=name=^100%25_", ["100%_x"]),
        ("filterBy=name=@%25_", ["100%_x"]),
        ("search=oun", ["Found", "found"]),
        ("filterBy=projectId==other", ["theirs"]),
        ("filterBy=projectName==none", []),
        ("filterBy=submittedBy==key-of-x", ["found"]),
        ("filterBy=createdAt<=2026-05-01T01:00:00Z", ["100%_x", "found"]),
        ("filterBy=createdAt<=2026-05-01T03:00:00%2B02:00,createdAt>=2026-05-01T00:00:00.001Z", ["100%_x"]),
        ("filterBy=createdAt>=2027-01-01", []),
    ]:
        found = said(many.call("GET", f"{WORKLOADS}?{query}"))

        assert [each["name"] for each in found["workloads"]] == names, query


@pytest.mark.parametrize("query", ["filterBy=phase==Failed", "search=found"])
def test_workloads_are_counted_among_very_many(many: Api, query: str) -> None:
    assert many.call("GET", f"{WORKLOADS}/count?{query}").json == {"count": 1}


def test_project_of_others_is_not_listed(many: Api) -> None:
    key = many.make_key(Role.USER)

    assert said(many.call("GET", f"{WORKLOADS}?filterBy=projectId==other", key=key)) == {"workloads": []}


def test_training_jobs_are_found_among_very_many(many: Api) -> None:
    conditions: list[tuple[tuple[str, ...], dict[str, Any], list[str]]] = [
        (("phase", "in", "Failed", "Terminated"), {}, ["Found", "found"]),
        (("phase", "in", "Burning"), {}, []),
        (("name", "like", "oun", "%_"), {"order": "asc"}, ["found", "100%_x", "Found"]),
        (("name", "in", "found"), {}, ["found"]),
        (("create_time", "between", "0", str(round(START.timestamp() * 1000))), {}, ["found"]),
        (("create_time", "between", "9" * 100, "9" * 101), {}, []),
    ]
    for (key, operator, *values), more, names in conditions:
        body = {"filters": [{"key": key, "operator": operator, "value": values}], **more}

        found = said(many.post(SEARCHES, body))

        assert ([each["metadata"]["name"] for each in found["items"]], found["count"]) == (names, len(names)), key


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"tags": [{"key": "team", "values": ["x"]}]}, ["found"]),
        ({"tags": [{"key": "team", "values": ["x"]}], "matches": [{"key": "resource_name", "value": "F"}]}, []),
        ({"matches": [{"key": "resource_name", "value": "%"}]}, ["100%_x"]),
        ({"without_any_tag": True}, ["new-3", "new-2", "new-1"]),
    ],
)
def test_tagged_jobs_are_found_among_very_many(many: Api, asked: dict[str, Any], names: list[str]) -> None:
    found = said(many.post("/v2/default/modelarts-training-job/resource-instances/filter", asked))

    assert [each["resource_name"] for each in found["resources"]] == names


def test_events_come_in_pages_and_without_those_of_deleted_jobs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_CHUNK", 2)
    monkeypatch.setattr(events, "_MOST_EVENTS", 4)
    jobs = [api.submit(name=f"job-{number}") for number in range(3)]
    for job_id in jobs:
        api.post(f"/v1/jobs/{job_id}/cancel")
    api.submit(key=api.make_key(Role.USER, "other"))
    newest = [each["involvedObject"]["name"] for each in said(api.call("GET", EVENTS))["items"]]
    api.call("DELETE", f"{OME}/trainingjobs/{jobs[1]}")

    pages, place = list[list[tuple[str, str]]](), ""
    while not pages or place:
        page = said(api.call("GET", f"{EVENTS}?limit=3{place}"))
        pages.append([(each["involvedObject"]["name"], each["metadata"]["name"]) for each in page["items"]])
        place = f"&continue={page['metadata']['continue']}" if "continue" in page["metadata"] else ""

    listed = [each for page in pages for each in page]
    assert len(newest) == 4
    assert newest[1:] == jobs, "the newest come last, those of another namespace not at all"
    assert {job_id for job_id, _ in listed} == {jobs[0], jobs[2]}
    assert [event_id for _, event_id in listed] == sorted({event_id for _, event_id in listed})
    assert all(len(page) == 3 for page in pages[:-1])
    assert api.call("GET", f"{EVENTS}?limit=3&continue=evt-x").status_code == 400


def test_job_without_a_model_makes_none(api: Api) -> None:
    body = {"name": "x", "projectId": "default", "clusterId": "c", "spec": {"command": "true"}}
    assert api.post("/api/v1/workloads/trainings", body).status_code == 202

    assert said(api.call("GET", f"{OME}/basemodels"))["items"] == []
    assert said(api.call("GET", f"{OME}/finetunedweights"))["items"] == []


def test_models_and_weights_of_very_many_jobs(many: Api) -> None:
    first = said(many.call("GET", f"{OME}/finetunedweights?limit=3"))
    rest = said(many.call("GET", f"{OME}/finetunedweights?limit=3&continue={first['metadata']['continue']}"))

    assert said(many.call("GET", f"{OME}/basemodels"))["items"] == [], "what jobs name makes none"
    assert [len(page["items"]) for page in (first, rest)] == [3, 1], "all of the namespace that made a model"
    assert first["items"][0]["status"]["state"] == "Ready"
    weight = said(many.call("GET", f"{OME}/finetunedweights/{rest['items'][0]['metadata']['name']}"))
    assert weight == rest["items"][0]
    for path in ("basemodels/none", "finetunedweights/none"):
        answer = many.call("GET", f"{OME}/{path}")
        assert answer.status_code == 404
        assert f'{path.partition("/")[0]}.ome.io "none" not found' in answer.text.replace("\\", "")
