"""CyxWiz's job execution over HTTP: its own messages in and out, over the same jobs as the native API's."""

import json
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf import json_format
from werkzeug.test import TestResponse

from app.compat.cyxwiz import messages_pb2 as pb
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import work_orders
from app.services.lifecycle import transitions
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.walks import NO_WAIT
from tests.systems.apps import Api

BASE = "/compat/cyxwiz/v1"
BINARY = "application/x-protobuf"
CONFIG = {
    "job_id": "night-7",
    "job_type": "TRAINING",
    "model_config": "/srv/models/base",
    "dataset_uri": "/srv/data/train.jsonl",
    "epochs": 3,
    "batch_size": 8,
    "learning_rate": 2e-4,
    "priority": 8,
}
_WITH_A_TYPING_ERROR = json.dumps(
    {"training_config": {"base_model": {"model_id": "/srv/m"}}, "output_config": {"merge": True}}
)


def said(answer: TestResponse) -> Any:
    return answer.json


def submitted(api: Api, **changes: Any) -> str:
    """The native id of a new job."""
    answer = api.post(f"{BASE}/jobs", {**CONFIG, **changes})
    assert answer.status_code == 201, answer.text
    return str(status(api, said(answer)["job_id"])["trainyard_job_id"])


def status(api: Api, job_id: str) -> dict[str, Any]:
    answer = api.call("GET", f"{BASE}/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    return dict(said(answer))


def test_job_of_a_cyxwiz_client_is_one_of_the_native_api(api: Api) -> None:
    answer = api.post(f"{BASE}/jobs", CONFIG)

    assert (answer.status_code, said(answer)["job_id"], said(answer)["status"]) == (201, "night-7", "PENDING")
    assert answer.headers["Location"] == f"{BASE}/jobs/night-7"
    shown = status(api, "night-7")
    native = api.get(f"/v1/jobs/{shown['trainyard_job_id']}")
    assert native["name"] == "night-7"
    assert native["training_config"]["hyperparameters"] == {"learning_rate": "0.0002", "num_train_epochs": "3"}
    assert native["scheduling_config"]["priority"] == 8
    assert {name: shown["config"][name] for name in CONFIG} == CONFIG
    assert status(api, shown["trainyard_job_id"])["job_id"] == "night-7"


def test_native_job_is_seen_by_cyxwiz_clients(api: Api) -> None:
    job_id = api.submit()

    shown = status(api, job_id)

    assert (shown["job_id"], shown["status"], shown["step"]) == (job_id, "PENDING", "RECEIVED")
    assert shown["config"]["dataset_uri"] == api.get(f"/v1/jobs/{job_id}")["data_config"]["sources"][0]["path"]
    assert "training_config" in shown["config"]["model_config"]


def test_names_as_protobuf_writes_them_in_json_are_read_too(api: Api) -> None:
    message = json_format.ParseDict(CONFIG, pb.JobConfig())

    answer = api.post(f"{BASE}/jobs", json_format.MessageToDict(message))

    assert answer.status_code == 201
    assert status(api, "night-7")["config"]["model_config"] == "/srv/models/base"


def test_messages_travel_in_binary_form_too(api: Api) -> None:
    body = json_format.ParseDict(CONFIG, pb.JobConfig()).SerializeToString()
    headers = {"Content-Type": BINARY, "Accept": BINARY}

    made = api.call("POST", f"{BASE}/jobs", data=body, headers=headers)
    read = api.call("GET", f"{BASE}/jobs/night-7", headers={"Accept": BINARY})
    missing = api.call("GET", f"{BASE}/jobs/other", headers={"Accept": BINARY})

    assert (made.status_code, made.mimetype) == (201, BINARY)
    assert pb.SubmitJobResponse.FromString(made.data).job_id == "night-7"
    assert pb.JobStatus.FromString(read.data).config.epochs == 3
    assert pb.Error.FromString(missing.data).code == 5


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**CONFIG, "epochs": 0}, "epochs"),
        ({**CONFIG, "epochs": "many"}, "epochs"),
        ({**CONFIG, "priority": 11}, "priority"),
        ({**CONFIG, "batch_size": 10**7}, "batch_size"),
        ({**CONFIG, "learning_rate": -1}, "learning_rate"),
        ({**CONFIG, "learning_rate": 1e9}, "learning_rate"),
        ({**CONFIG, "dataset_uri": "/etc/passwd"}, "dataset_uri"),
        ({**CONFIG, "dataset_uri": "http://127.0.0.1/x"}, "dataset_uri"),
        ({**CONFIG, "model_config": "/etc"}, "model_config"),
        ({**CONFIG, "model_config": '{"training_config": {"base_model": {"model_id": 1}}}'}, "model_config"),
        ({**CONFIG, "model_config": _WITH_A_TYPING_ERROR}, "model_config.output_config.merge"),
        ({**CONFIG, "required_device": "OPENCL"}, "required_device"),
        ({**CONFIG, "required_device": "TPU"}, "required_device"),
        ({**CONFIG, "required_device": 7}, "required_device"),
        ({**CONFIG, "learning_rate": "NaN"}, "learning_rate"),
        ({**CONFIG, "colour": "blue"}, "colour"),
        ({**CONFIG, "jobId": "night-8"}, "job_id"),
    ],
)
def test_errors_name_the_field_as_the_client_knows_it(api: Api, body: Any, field: str) -> None:
    answer = api.post(f"{BASE}/jobs", body)

    assert answer.status_code == 400, answer.text
    assert said(answer)["code"] == 3
    assert [detail["field"] for detail in said(answer)["details"]][:1] == [field], said(answer)
    assert api.get("/v1/jobs")["total_count"] == 0


def test_binary_message_with_unknown_fields_is_refused(api: Api) -> None:
    body = json_format.ParseDict(CONFIG, pb.JobConfig()).SerializeToString() + b"\xa2\x06\x01x"  # field 100

    answer = api.call("POST", f"{BASE}/jobs", data=body, headers={"Content-Type": BINARY})

    assert answer.status_code == 400
    assert said(answer)["details"][0]["field"] == "100"
    assert said(answer)["message"].startswith("100: JobConfig has no field of that number; its fields are job_id, ")


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"\x0a\x05ab"])
def test_what_is_no_message_is_refused(api: Api, body: bytes) -> None:
    answer = api.call("POST", f"{BASE}/jobs", data=body, headers={"Content-Type": BINARY})

    assert (answer.status_code, said(answer)["code"]) == (400, 3)
    assert said(answer)["message"] == (
        "the body is not a binary message JobConfig; serialize one by messages.proto, or send JSON with the "
        "header Content-Type: application/json"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": "many"}, "epochs: must be a whole number from -2147483648 to 2147483647"),
        (
            {"epochs": 1.5, "min_memory_mb": []},
            "epochs: must be a whole number from -2147483648 to 2147483647 (and 1 more)",
        ),
        (
            {"timeout_seconds": 2**63},
            "timeout_seconds: must be a whole number from -9223372036854775808 to 9223372036854775807",
        ),
        ({"learning_rate": {}}, "learning_rate: must be a number"),
        ({"dataset_uri": 5}, "dataset_uri: must be a text"),
        ({"required_device": "TPU"}, "required_device: must be one of DEVICE_UNKNOWN, CPU, CUDA, OPENCL"),
        ({"priority": 11}, "priority: must be 1 to 10, or omitted"),
    ],
)
def test_message_names_the_field_and_the_rule(api: Api, changes: Any, message: str) -> None:
    answer = api.post(f"{BASE}/jobs", {**CONFIG, **changes})

    assert (answer.status_code, said(answer)["message"]) == (400, message)


@pytest.mark.both_databases
def test_name_is_given_once_in_a_project(api: Api) -> None:
    other = api.make_key(Role.USER, "team-b")
    first = submitted(api)

    again = api.post(f"{BASE}/jobs", CONFIG)
    elsewhere = api.post(f"{BASE}/jobs", CONFIG, key=other)

    assert (again.status_code, said(again)["code"]) == (409, 9)
    assert first in said(again)["message"]
    assert elsewhere.status_code == 201
    assert said(api.call("GET", f"{BASE}/jobs/night-7", key=other))["trainyard_job_id"] != first


@pytest.mark.both_databases
def test_name_is_free_again_once_the_job_is_deleted(api: Api) -> None:
    submitted(api)
    api.post(f"{BASE}/jobs/night-7/cancel")

    deleted = api.call("DELETE", f"{BASE}/jobs/night-7")

    assert deleted.status_code == 204
    assert api.call("GET", f"{BASE}/jobs/night-7").status_code == 404
    assert api.post(f"{BASE}/jobs", CONFIG).status_code == 201


def test_the_same_request_is_answered_as_before(api: Api) -> None:
    headers = {"Idempotency-Key": "k-1"}

    first = api.post(f"{BASE}/jobs", CONFIG, headers=headers)
    again = api.post(f"{BASE}/jobs", CONFIG, headers=headers)
    binary = api.post(f"{BASE}/jobs", CONFIG, headers={**headers, "Accept": BINARY})

    assert (first.status_code, again.status_code) == (201, 201)
    assert said(again) == said(first)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert pb.SubmitJobResponse.FromString(binary.data).job_id == "night-7"
    assert api.get("/v1/jobs")["total_count"] == 1


def test_job_is_paused_resumed_and_cancelled(api: Api) -> None:
    job_id = submitted(api)

    paused = api.post(f"{BASE}/jobs/night-7/pause")
    again = api.post(f"{BASE}/jobs/night-7/pause", {})
    resumed = api.post(f"{BASE}/jobs/night-7/resume")
    cancelled = api.post(f"{BASE}/jobs/night-7/cancel", {"reason": "the data was wrong"})
    late = api.post(f"{BASE}/jobs/night-7/resume")

    answered = [(answer.status_code, said(answer)["status"]) for answer in (paused, again, resumed, cancelled)]
    assert answered == [(200, "PAUSED"), (200, "PAUSED"), (200, "PENDING"), (200, "CANCELLED")]
    assert (late.status_code, said(late)["code"]) == (409, 9)
    assert "the data was wrong" in str(api.get(f"/v1/jobs/{job_id}/events"))


def test_progress_says_what_the_job_says(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(
            session,
            state=JobState.TRAINING,
            progress=0.25,
            current_epoch=0.75,
            total_epochs=3.0,
            eta_seconds=90.4,
            latest_metrics={"loss": 1.5, "memory_mb": 800.4, "gpu_utilization": 55.0, "grad_norm": "NaN"},
        )
        job_id = job.id

    answer = said(api.call("GET", f"{BASE}/jobs/{job_id}/progress"))

    assert answer["metrics"].pop("grad_norm") == "NaN"
    assert answer == {
        "job_id": job_id,
        "progress": 0.25,
        "current_epoch": 1,
        "total_epochs": 3,
        "gpu_utilization": 55.0,
        "metrics": {"loss": 1.5, "memory_mb": 800.4, "gpu_utilization": 55.0},
        "memory_used_mb": "800",
        "elapsed_seconds": "0",
        "eta_seconds": "90",
    }


@pytest.mark.parametrize(("passed", "number"), [(0.0, 0), (0.01, 1), (1.0, 1), (1.000000000002, 1), (1.5, 2), (3.0, 3)])
def test_current_epoch_is_the_one_that_is_trained(api: Api, passed: float, number: int) -> None:
    with api.db.write() as session:
        job_id = make_job(session, state=JobState.TRAINING, current_epoch=passed, total_epochs=3.0).id

    progress = said(api.call("GET", f"{BASE}/jobs/{job_id}/progress"))

    assert progress["current_epoch"] == status(api, job_id)["current_epoch"] == number


@pytest.mark.parametrize(
    ("before", "step"),
    [
        (JobState.PENDING, "VALIDATE"),
        (JobState.SCHEDULING, "VALIDATE"),
        (JobState.PREPARING, "DOWNLOAD"),
        (JobState.TRAINING, "EXECUTE"),
        (JobState.EXPORTING, "UPLOAD"),
    ],
)
@pytest.mark.parametrize("end", [JobState.FAILED, JobState.CANCELLED])
def test_step_of_a_job_that_did_not_succeed_is_where_it_ended(
    api: Api, before: JobState, step: str, end: JobState
) -> None:
    with api.db.write() as session:
        job = make_job(session, state=before)
        transitions.transition(session, job, end, actor="test")
        job_id = job.id

    listed = said(api.call("GET", f"{BASE}/jobs"))["jobs"]

    assert status(api, job_id)["step"] == step
    assert [job["step"] for job in listed] == [step]


def test_elapsed_seconds_never_go_back(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, elapsed_seconds=60.0)
        make_attempt(session, job, make_node(session))
        job_id = job.id
        # Its supervisor's clock starts when that has started, after the attempt was claimed.
        session.get_one(Attempt, (job_id, 1)).started_at = utc_now() - timedelta(seconds=28)

    running = said(api.call("GET", f"{BASE}/jobs/{job_id}/progress"))
    work_orders.finish(
        api.db, work_orders.load_work(api.db, job_id, 1), Outcome(kind="cancelled", ran_seconds=26.0), NO_WAIT
    )
    ended = said(api.call("GET", f"{BASE}/jobs/{job_id}/progress"))

    assert int(ended["elapsed_seconds"]) >= int(running["elapsed_seconds"]) >= 88


def test_progress_is_followed_to_the_end(api: Api) -> None:
    with api.db.write() as session:
        job_id = make_job(session, state=JobState.COMPLETED, progress=1.0).id

    answer = api.call("GET", f"{BASE}/jobs/{job_id}/progress", headers={"Accept": "text/event-stream"})

    events = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert '"progress":1.0' in events[0]
    assert events[1:] == ["data: [DONE]"]


def test_report_of_an_ended_job(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(
            session,
            state=JobState.COMPLETED,
            elapsed_seconds=12.5,
            gpu_seconds=10.0,
            finished_at=utc_now(),
            report={"model_hash": "5" * 64, "model_uri": "file:///m", "final_metrics": {"loss": 0.5}},
        )
        job_id = job.id
        waiting = make_job(session).id

    report = said(api.call("GET", f"{BASE}/jobs/{job_id}/report"))
    early = api.call("GET", f"{BASE}/jobs/{waiting}/report")

    assert report == {
        "job_id": job_id,
        "status": "SUCCESS",
        "model_hash": "5" * 64,
        "model_uri": "file:///m",
        "final_metrics": {"loss": 0.5},
        "compute_time_ms": "12500",
        "gpu_time_ms": "10000",
        "average_gpu_util": 0.0,
        "proof_of_compute": "",
        "error_message": "",
        "error_stack": "",
    }
    assert (early.status_code, said(early)["code"]) == (404, 5)


@pytest.mark.both_databases
def test_jobs_are_listed_by_state_and_page(api: Api) -> None:
    for number in range(3):
        submitted(api, job_id=f"night-{number}")
    api.post(f"{BASE}/jobs/night-1/cancel")

    first = said(api.call("GET", f"{BASE}/jobs?page_size=2&order_by=name"))
    second = said(api.call("GET", f"{BASE}/jobs?page_size=2&order_by=name&page_token={first['next_page_token']}"))
    waiting = said(api.call("GET", f"{BASE}/jobs?status=PENDING&order_by=name"))

    assert [job["job_id"] for job in first["jobs"] + second["jobs"]] == ["night-0", "night-1", "night-2"]
    assert (first["total_count"], second["next_page_token"]) == ("3", "")
    assert [job["job_id"] for job in waiting["jobs"]] == ["night-0", "night-2"]
    assert api.call("GET", f"{BASE}/jobs?status=HAPPY").status_code == 400


def test_alias_is_no_way_to_another_project(api: Api) -> None:
    other = api.make_key(Role.ADMIN, "team-b")
    job_id = submitted(api)

    assert api.call("GET", f"{BASE}/jobs/night-7", key=other).status_code == 404
    assert api.call("GET", f"{BASE}/jobs/{job_id}", key=other).status_code == 404
    with api.db.read() as session:
        assert session.get_one(Job, job_id).alias == "cyxwiz:default:night-7"
