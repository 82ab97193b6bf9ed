"""CyxWiz's INFERENCE over HTTP: the jobs that POST /v1/inference makes, in its messages."""

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.services.lifecycle import transitions
from tests.systems.apps import Api

BASE = "/compat/cyxwiz/v1"
CONFIG = {
    "job_id": "label-2026",
    "job_type": "INFERENCE",
    "model_config": "/srv/models/base",
    "dataset_uri": "/srv/data/train.jsonl",
    "required_device": "CPU",
    "priority": 8,
    "max_output_size_mb": "500",
}
FEATURES = {"kind": "features", "model": {"model_uri": "/srv/models/base"}, "task": {"pooling": "max"}}


def said(answer: TestResponse) -> Any:
    return answer.json


def submitted(api: Api, **changes: Any) -> dict[str, Any]:
    """The job's status."""
    answer = api.post(f"{BASE}/jobs", {**CONFIG, **changes})
    assert answer.status_code == 201, answer.text
    return shown(api, str(said(answer)["job_id"]))


def shown(api: Api, job_id: str) -> dict[str, Any]:
    answer = api.call("GET", f"{BASE}/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    return dict(said(answer))


def moved(api: Api, job_id: str, *states: JobState, **columns: Any) -> None:
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        for state in states:
            transitions.transition(session, job, state, actor="test")
        for name, value in columns.items():
            setattr(job, name, value)


def test_inference_job_is_a_batch_of_the_native_api(api: Api) -> None:
    found = submitted(api)

    native = api.get(f"/v1/inference/{found['trainyard_job_id']}")
    assert (native["kind"], native["name"], native["task"]["type"]) == ("batch", "label-2026", "generate")
    assert native["model"]["model_uri"] == "/srv/models/base"
    assert native["output"]["max_size_mb"] == 500
    assert native["scheduling_config"]["priority"] == 8
    assert {name: found["config"][name] for name in CONFIG} == CONFIG


def test_sections_of_an_inference_document_make_features(api: Api) -> None:
    found = submitted(api, model_config=json.dumps(FEATURES))

    given_back = json.loads(found["config"]["model_config"])
    assert api.get(f"/v1/inference/{found['trainyard_job_id']}")["kind"] == "features"
    assert (given_back["kind"], given_back["task"]["pooling"]) == ("features", "max")
    again = submitted(api, job_id="again", model_config=found["config"]["model_config"])
    assert json.loads(again["config"]["model_config"]) == given_back


def test_progress_counts_records(api: Api) -> None:
    job_id = submitted(api)["trainyard_job_id"]
    moved(
        api,
        job_id,
        *(JobState.QUEUED, JobState.SCHEDULING, JobState.PREPARING, JobState.EVALUATING),
        current_step=300,
        total_steps=1200,
        progress=0.25,
    )

    progress, found = said(api.call("GET", f"{BASE}/jobs/label-2026/progress")), shown(api, "label-2026")

    assert (progress["progress"], progress["metrics"]) == (0.25, {"records": 300.0, "total_records": 1200.0})
    assert (progress["current_epoch"], progress["total_epochs"]) == (0, 0)
    assert (found["status"], found["step"]) == ("RUNNING", "EXECUTE")


def test_report_has_the_place_of_the_output_and_no_model(api: Api) -> None:
    job_id = submitted(api)["trainyard_job_id"]
    states = (JobState.QUEUED, JobState.SCHEDULING, JobState.PREPARING, JobState.EVALUATING, JobState.EXPORTING)
    result = {"model_hash": "", "model_uri": "file:///srv/out", "final_metrics": {"records": 1200.0, "failed": 3.0}}
    moved(api, job_id, *states, JobState.COMPLETED, report=result, elapsed_seconds=12.5)

    report = said(api.call("GET", f"{BASE}/jobs/label-2026/report"))

    assert (report["job_id"], report["status"]) == ("label-2026", "SUCCESS")
    assert (report["model_hash"], report["model_uri"]) == ("", "file:///srv/out")
    assert report["final_metrics"] == {"records": 1200.0, "failed": 3.0}
    assert report["compute_time_ms"] == "12500"


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"epochs": 2}, "epochs", "is for TRAINING"),
        ({"model_config": json.dumps({"kind": "batch"})}, "model_config.model", "required"),
        (
            {"model_config": json.dumps({**FEATURES, "kind": "batch", "task": {}, "output": {"format": "npy"}})},
            "model_config.output.format",
            "choose one of them",
        ),
        ({"dataset_uri": "/etc/passwd"}, "dataset_uri", "directory that jobs may read"),
    ],
)
def test_errors_name_the_field_as_the_client_knows_it(api: Api, changes: dict[str, Any], field: str, why: str) -> None:
    answer = api.post(f"{BASE}/jobs", {**CONFIG, **changes})

    details = said(answer)["details"]
    assert (answer.status_code, [each["field"] for each in details]) == (400, [field]), answer.text
    assert why in answer.text


def test_a_job_that_is_not_there_is_not_found(api: Api) -> None:
    answer = api.post(f"{BASE}/jobs", {**CONFIG, "model_config": "job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"})

    assert (answer.status_code, said(answer)["code"]) == (404, 5)


def test_jobs_of_both_types_are_listed_together(api: Api) -> None:
    submitted(api)
    api.submit()

    jobs = said(api.call("GET", f"{BASE}/jobs"))["jobs"]

    assert sorted(job["config"]["job_type"] for job in jobs) == ["INFERENCE", "TRAINING"]
