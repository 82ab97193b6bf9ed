"""CyxWiz's real-time INFERENCE over HTTP: the services that POST /v1/services makes, in its messages."""

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.domain.serving.states import ServiceState
from app.models import Service, ServiceEvent
from app.models.base import utc_now
from app.security.permissions import Role
from tests.systems.apps import Api

BASE = "/compat/cyxwiz/v1"
MODEL = {"kind": "service", "model": {"model_uri": "/srv/models/base"}, "replicas": {"min": 0, "max": 2}}
CONFIG = {
    "job_id": "support",
    "job_type": "INFERENCE",
    "model_config": json.dumps(MODEL),
    "required_device": "CPU",
    "min_memory_mb": "512",
    "priority": 8,
}


def said(answer: TestResponse) -> Any:
    return answer.json


def submitted(api: Api, **changes: Any) -> dict[str, Any]:
    """The service's status."""
    answer = api.post(f"{BASE}/jobs", {**CONFIG, **changes})
    assert answer.status_code == 201, answer.text
    assert said(answer)["status"] == "RUNNING"
    return got(api, f"jobs/{said(answer)['job_id']}")


def got(api: Api, path: str, method: str = "GET", status: int = 200) -> dict[str, Any]:
    answer = api.call(method, f"{BASE}/{path}", json={} if method == "POST" else None)
    assert answer.status_code == status, answer.text
    return dict(said(answer))


def ended(api: Api, service_id: str) -> None:
    with api.db.write() as session:
        service = session.get_one(Service, service_id)
        service.status, service.ended_at = ServiceState.ENDED, utc_now()


def test_a_service_is_that_of_the_native_api(api: Api) -> None:
    found = submitted(api)

    native = api.get("/v1/services/support")
    assert native["service_id"] == found["trainyard_job_id"]
    assert (native["replicas"]["max"], native["model"]["model_uri"]) == (2, "/srv/models/base")
    assert native["resource_config"]["device_type"] == "cpu"
    assert native["resource_config"]["ram_min_mb"] == 512
    assert native["scheduling_config"]["priority"] == 8
    assert (found["status"], found["step"], found["progress"]) == ("RUNNING", "EXECUTE", 1.0)


def test_its_config_makes_the_same_service_again(api: Api) -> None:
    config = submitted(api)["config"]

    assert {name: config[name] for name in CONFIG if name != "model_config"} == {
        name: value for name, value in CONFIG.items() if name != "model_config"
    }
    given = {name: value for name, value in config.items() if value}
    again = submitted(api, **{**given, "job_id": "other", "model_config": config["model_config"]})["config"]
    assert json.loads(again["model_config"]) == json.loads(config["model_config"])


def test_service_is_paused_resumed_cancelled_and_reported(api: Api) -> None:
    service_id = submitted(api)["trainyard_job_id"]

    paused = got(api, "jobs/support/pause", "POST")
    resumed = got(api, "jobs/support/resume", "POST")
    early = got(api, "jobs/support/report", status=404)
    cancelled = said(api.call("POST", f"{BASE}/jobs/support/cancel", json={"reason": "no budget"}))
    ended(api, service_id)
    after, report = got(api, "jobs/support"), got(api, f"jobs/{service_id}/report")

    assert (paused["status"], resumed["status"]) == ("PAUSED", "RUNNING")
    assert early["code"] == 5
    assert (cancelled["status"], after["status"]) == ("RUNNING", "CANCELLED")
    assert after["end_time"]
    assert (report["status"], report["final_metrics"]) == ("CANCELLED", {"replicas": 0.0})
    with api.db.read() as session:
        said_why = [row.message for row in session.query(ServiceEvent).filter_by(service_id=service_id)]
    assert "deleted: no budget" in said_why
    assert got(api, "jobs/support/cancel", "POST", status=409)["code"] == 9
    assert got(api, "jobs/support", "DELETE", status=409)["code"] == 9


def test_progress_counts_replicas_and_requests(api: Api) -> None:
    service_id = submitted(api, model_config=json.dumps({**MODEL, "replicas": {"min": 2, "max": 2}}))
    progress = got(api, "jobs/support/progress")

    assert (service_id["step"], progress["job_id"], progress["progress"]) == ("RECEIVED", "support", 0.0)
    assert progress["metrics"] == {"answering": 0.0, "starting": 0.0, "wanted": 2.0, "in_flight": 0.0, "waiting": 0.0}


def test_followed_progress_ends_with_the_service(api: Api) -> None:
    ended(api, submitted(api)["trainyard_job_id"])

    answer = api.call("GET", f"{BASE}/jobs/support/progress", headers={"Accept": "text/event-stream"})

    assert answer.status_code == 200
    assert '"job_id":"support"' in answer.text.replace(" ", "")


def test_services_are_listed_in_place_of_jobs(api: Api) -> None:
    api.submit()
    first = submitted(api)["trainyard_job_id"]
    submitted(api, job_id="other")
    got(api, "jobs/other/pause", "POST")

    def names(query: str) -> list[str]:
        return [each["job_id"] for each in got(api, f"jobs?services=true{query}")["jobs"]]

    assert names("&order_by=name") == ["other", "support"]
    assert (names("&status=PAUSED"), names("&status=RUNNING")) == (["other"], ["support"])
    assert (names("&status=COMPLETED"), names("&status=CANCELLED")) == ([], [])
    ended(api, first)
    assert (names(""), names("&status=CANCELLED")) == (["other"], ["support"])
    assert len(got(api, "jobs")["jobs"]) == 1
    page = got(api, "jobs?services=true&page_size=1&status=PAUSED&status=CANCELLED")
    rest = got(
        api, f"jobs?services=true&page_size=1&status=PAUSED&status=CANCELLED&page_token={page['next_page_token']}"
    )
    assert {each["job_id"] for each in (*page["jobs"], *rest["jobs"])} == {"other", "support"}
    assert got(api, "jobs?services=true&order_by=priority", status=400)["code"] == 3


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"job_id": ""}, "job_id", "call as model"),
        ({"job_id": "Support_1"}, "job_id", "lower-case"),
        ({"dataset_uri": "/srv/data/a.jsonl"}, "dataset_uri", "omit it for a service"),
        ({"epochs": 1}, "epochs", "omit it for a service"),
        ({"timeout_seconds": 9}, "timeout_seconds", "omit it for a service"),
        ({"model_config": json.dumps({"kind": "service"})}, "model_config.model", "required"),
        ({"model_config": json.dumps({**MODEL, "data_config": {}})}, "model_config", "data_config is unknown"),
        ({"model_config": json.dumps({**MODEL, "replicas": {"min": -1}})}, "model_config.replicas.min", "0"),
        ({"model_config": json.dumps({**MODEL, "scheduling_config": {"priority": 2}})}, "model_config", "is set by"),
        ({"required_device": "OPENCL"}, "required_device", "not supported"),
    ],
)
def test_errors_name_the_field_as_the_client_knows_it(api: Api, changes: dict[str, Any], field: str, why: str) -> None:
    answer = api.post(f"{BASE}/jobs", {**CONFIG, **changes})

    details = said(answer)["details"]
    assert answer.status_code == 400, answer.text
    assert str(details[0]["field"]).startswith(field), answer.text
    assert why in answer.text


def test_names_are_unique_in_a_project(api: Api) -> None:
    submitted(api)
    again = api.post(f"{BASE}/jobs", CONFIG)
    taken = {"job_id": "night", "model_config": "/srv/models/base", "dataset_uri": "/srv/data/train.jsonl"}
    assert api.post(f"{BASE}/jobs", {**taken, "job_type": "INFERENCE"}).status_code == 201
    of_job = api.post(f"{BASE}/jobs", {**CONFIG, "job_id": "night"})

    assert (again.status_code, of_job.status_code) == (409, 409), (again.text, of_job.text)


def test_services_of_other_projects_are_not_there(api: Api) -> None:
    service_id = submitted(api)["trainyard_job_id"]
    key = api.make_key(Role.ADMIN, "team-b")

    for handle in ("support", service_id):
        for method, path in (
            ("GET", ""),
            ("GET", "/progress"),
            ("GET", "/report"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ):
            answer = api.call(method, f"{BASE}/jobs/{handle}{path}", key=key)
            assert answer.status_code == 404, (handle, path, answer.text)
    listed = api.call("GET", f"{BASE}/jobs?services=true", key=key)
    assert said(listed)["jobs"] == []
