"""Submitting, reading, listing and cancelling jobs over HTTP."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.models import IdempotentReply, Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.lifecycle import transitions
from app.services.requests.idempotency import TTL
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.systems.apps import Api


def test_submitted_job_is_stored_announced_and_can_be_read_at_once(api: Api):
    document = make_document(labels={"team": "a"}, scheduling_config={"priority": 7})

    answer = api.post("/v1/jobs", document)
    job = api.get(answer.headers["Location"])

    assert api.data(answer, 201)["job_id"] == job["job_id"]
    assert api.data(answer, 201)["status"] == "PENDING"
    assert api.dispatcher.admitted == [(job["job_id"], "default", 7)]
    assert job["name"] == document["name"]
    assert job["labels"] == {"team": "a"}
    assert job["training_config"]["hyperparameters"] == document["training_config"]["hyperparameters"]
    assert job["scheduling_config"]["priority"] == 7
    assert job["queue_position"] == 1
    assert job["created_by"].startswith("key-")
    assert job["created_at"].endswith("Z")


def test_job_shows_every_documented_field(api: Api):
    documented = {
        "job_id",
        "name",
        "labels",
        "training_config",
        "data_config",
        "resource_config",
        "output_config",
        "scheduling_config",
        "project",
        "created_by",
        "created_by_name",
        "status",
        "status_reason",
        "queue_position",
        "estimated_start_at",
        "progress",
        "current_step",
        "total_steps",
        "current_epoch",
        "total_epochs",
        "eta_seconds",
        "elapsed_seconds",
        "latest_metrics",
        "latest_checkpoint_id",
        "best_checkpoint_id",
        "attempt",
        "node_names",
        "parent_job_id",
        "kind",
        "sweep_id",
        "child_job_ids",
        "tracking",
        "requested",
        "error_message",
        "error_type",
        "pending_reason",
        "created_at",
        "queued_at",
        "started_at",
        "finished_at",
        "version",
        *("memory_estimate", "evaluations", "interactive_config", "ready", "kept_until", "ports"),
    }

    assert set(api.get(f"/v1/jobs/{api.submit()}")) == documented


def test_submission_is_in_the_history_as_its_first_event(api: Api):
    job_id = api.submit()

    events = api.get(f"/v1/jobs/{job_id}/events")["events"]

    assert [event["type"] for event in events] == ["job.submitted"]


def test_secrets_are_sealed_and_never_shown(api: Api):
    job_id = api.submit(
        training_config={"environment": {"WANDB_API_KEY": "very-secret", "NCCL_DEBUG": "WARN"}},
        output_config={"hub_token": "hf_canary"},
    )

    shown = api.call("GET", f"/v1/jobs/{job_id}").get_data(as_text=True)

    assert "very-secret" not in shown
    assert "hf_canary" not in shown
    job = api.get(f"/v1/jobs/{job_id}")
    assert job["output_config"]["hub_token"] == "***"
    assert job["training_config"]["environment"] == {"WANDB_API_KEY": "***", "NCCL_DEBUG": "WARN"}
    with api.db.read() as session:
        row = session.get_one(Job, job_id)
        assert "hf_canary" not in row.sealed_secrets
        assert api.app.extensions["trainyard"].plane.box.open(row.sealed_secrets) == {
            "output_config.hub_token": "hf_canary",
            "training_config.environment.WANDB_API_KEY": "very-secret",
        }


def test_unknown_queue_is_refused_and_names_the_known_ones(api: Api):
    problem = api.problem(api.post("/v1/jobs", make_document(scheduling_config={"queue": "fast"})), 400)

    assert problem["details"][0]["field"] == "scheduling_config.queue"
    assert "default" in problem["message"]


def test_job_that_fits_nowhere_is_refused_with_the_largest_that_would_fit(api: Api):
    with api.db.write() as session:
        make_node(session, "big", devices=2, device_type="a100", memory_mb=81920, cpu_cores=8)

    too_many = api.post("/v1/jobs", make_document(resource_config={"gpu_count": 4, "device_type": "cuda"}))
    unknown = api.post("/v1/jobs", make_document(resource_config={"gpu_type": "H100", "device_type": "auto"}))
    greedy = api.post("/v1/jobs", make_document(resource_config={"device_type": "cuda", "cpu_cores": 64}))
    fitting = api.post("/v1/jobs", make_document(resource_config={"gpu_type": "A100-80GB", "device_type": "auto"}))

    assert "gpu_count that would fit is 2" in api.problem(too_many, 400)["message"]
    assert "a100" in api.problem(unknown, 400)["message"]
    assert api.problem(unknown, 400)["details"][0]["field"] == "resource_config.gpu_type"
    assert "cpu_cores that would fit is 8" in api.problem(greedy, 400)["message"]
    assert fitting.status_code == 201


def test_refused_submission_writes_nothing(api: Api):
    api.post("/v1/jobs", make_document(resource_config={"gpu_count": 0}))

    assert api.get("/v1/jobs")["total_count"] == 0
    assert api.dispatcher.admitted == []


def test_resume_pins_a_checkpoint_of_an_equal_job(api: Api):
    parent = api.submit()
    with api.db.write() as session:
        checkpoint = make_checkpoint(session, session.get_one(Job, parent)).id

    child = api.submit(training_config={"resume_from_checkpoint": checkpoint})
    other_data = api.post(
        "/v1/jobs", make_document(training_config={"resume_from_checkpoint": checkpoint}, data_config={"batch_size": 2})
    )
    unknown = api.post("/v1/jobs", make_document(training_config={"resume_from_checkpoint": "ckpt-nothing"}))
    defaults = {"batch_size": 8, "seed": 42, "preprocess": {"truncation": True}}
    same_data = api.submit(training_config={"resume_from_checkpoint": checkpoint}, data_config=defaults)

    with api.db.read() as session:
        assert session.get_one(Job, child).resume_checkpoint_id == checkpoint
        assert session.get_one(Job, same_data).resume_checkpoint_id == checkpoint
    assert "data_config" in api.problem(other_data, 400)["message"]
    assert api.problem(unknown, 400)["details"][0]["field"] == "training_config.resume_from_checkpoint"


def test_checkpoint_of_another_project_does_not_exist(api: Api):
    parent = api.submit()
    stranger = api.make_key(Role.USER, "other")
    with api.db.write() as session:
        checkpoint = make_checkpoint(session, session.get_one(Job, parent)).id

    document = make_document(training_config={"resume_from_checkpoint": checkpoint})
    foreign = api.problem(api.post("/v1/jobs", document, key=stranger), 400)["message"]

    assert foreign == f"the project other has no checkpoint {checkpoint}"


def test_results_of_another_project_cannot_be_named_as_a_model(api: Api):
    stranger = api.make_key(Role.USER, "other")
    model = f"{api.folder}/data/files/jobs/{api.submit()}/artifacts"

    own = api.post("/v1/jobs", make_document(training_config={"base_model": {"model_id": model}}))
    foreign = api.post("/v1/jobs", make_document(training_config={"base_model": {"model_id": model}}), key=stranger)

    assert own.status_code == 201
    assert api.problem(foreign, 400)["details"][0]["field"] == "training_config.base_model.model_id"


def test_results_in_a_storage_of_its_own_are_kept_apart_too(database: Database, tmp_path: Path):
    api = Api(database, tmp_path, TRAINYARD_STORAGE_URL=f"file://{tmp_path}/inputs/store/")
    (api.inputs / "store").mkdir()
    (api.inputs / "link").symlink_to(api.inputs / "store")
    stranger = api.make_key(Role.USER, "other")
    job_id = api.submit()

    for folder in ("store", "link"):
        model = {"model_id": f"{api.inputs}/{folder}/jobs/{job_id}/artifacts"}
        own = api.post("/v1/jobs", make_document(training_config={"base_model": model}))
        foreign = api.post("/v1/jobs", make_document(training_config={"base_model": model}), key=stranger)

        assert own.status_code == 201
        assert api.problem(foreign, 400)["details"][0]["field"] == "training_config.base_model.model_id"


def test_the_platforms_own_files_cannot_be_named_as_data(api: Api):
    own = ["/secret.key", "/trainyard.db", "/files", "/files/jobs", "", "/files/../secret.key", "/run/x", "/log/x"]

    refused = {
        path: api.post(
            "/v1/jobs", make_document(data_config={"sources": [{"path": f"file://{api.folder}/data{path}"}]})
        ).status_code
        for path in own
    }

    assert refused == dict.fromkeys(own, 400)


def test_waiting_job_is_cancelled_at_once_and_again(api: Api):
    job_id = api.submit()

    first = api.data(api.post(f"/v1/jobs/{job_id}/cancel", {"reason": "changed my mind"}))
    second = api.data(api.post(f"/v1/jobs/{job_id}/cancel"))

    assert first["status"] == second["status"] == "CANCELLED"
    assert first["finished_at"] is not None
    assert second["version"] == first["version"]


def test_running_job_gets_the_control_request_and_its_node_a_nudge(api: Api):
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, "n1"))
        job_id = job.id

    answer = api.data(api.post(f"/v1/jobs/{job_id}/cancel", {"reason": "wrong data"}))
    api.post(f"/v1/jobs/{job_id}/cancel")

    assert (answer["status"], answer["requested"]) == ("PREPARING", "cancel")
    assert api.dispatcher.nudged == [(job_id, "n1")] * 2
    types = [event["type"] for event in api.get(f"/v1/jobs/{job_id}/events")["events"]]
    assert types == ["job.cancel_requested"]


def test_ended_job_cannot_be_cancelled(api: Api):
    with api.db.write() as session:
        job = make_job(session)
        transitions.transition(session, job, JobState.FAILED, actor="test")
        job_id = job.id

    problem = api.problem(api.post(f"/v1/jobs/{job_id}/cancel"), 409)

    assert problem["code"] == "INVALID_STATE"
    assert "FAILED" in problem["message"]


def test_another_projects_job_looks_like_none(api: Api):
    job_id = api.submit()
    stranger = api.make_key(Role.ADMIN, "other")
    unknown = "job-01900000-0000-7000-8000-000000000000"

    for path in (
        "",
        "/events",
        "/metrics",
        "/metrics/stream",
        "/logs",
        "/checkpoints",
        "/attempts",
        "/report",
        "/artifacts",
        "/artifacts/model.safetensors",
    ):
        foreign = api.call("GET", f"/v1/jobs/{job_id}{path}", key=stranger)
        missing = api.call("GET", f"/v1/jobs/{unknown}{path}", key=stranger)
        assert foreign.status_code == missing.status_code == 404, path
        assert api.problem(foreign, 404)["message"].replace(job_id, "X") == api.problem(missing, 404)[
            "message"
        ].replace(unknown, "X")
    assert api.call("POST", f"/v1/jobs/{job_id}/cancel", key=stranger).status_code == 404
    assert api.get("/v1/jobs", key=stranger)["jobs"] == []


FILTERS: dict[str, set[str]] = {
    "": {"a", "b", "c"},
    "status=PENDING&status=CANCELLED": {"a", "b", "c"},
    "status=CANCELLED": {"c"},
    "labels.team=x": {"a", "b"},
    "labels.team=x&labels.run=2": {"b"},
    "labels.team=x&labels.team=y": set(),
    "name=b": {"b"},
    "name=B": set(),
    "framework=HF_TRAINER&training_type=SFT": {"a", "b", "c"},
    "queue=elsewhere": set(),
    "project=default": {"a", "b", "c"},
    "created_after=2100-01-01T00:00:00Z": set(),
    "created_before=2100-01-01T00:00:00%2B02:00": {"a", "b", "c"},
    "parent_job_id=job-x": set(),
    "sweep_id=sweep-x": set(),
}


def test_list_is_filtered(api: Api):
    api.submit(name="a", labels={"team": "x"})
    api.submit(name="b", labels={"team": "x", "run": "2"})
    api.post(f"/v1/jobs/{api.submit(name='c')}/cancel")

    answers = {query: api.get(f"/v1/jobs?{query}") for query in FILTERS}

    assert {query: {job["name"] for job in answer["jobs"]} for query, answer in answers.items()} == FILTERS
    assert {query: answer["total_count"] for query, answer in answers.items()} == {
        query: len(names) for query, names in FILTERS.items()
    }


def test_pages_hold_every_job_once_while_jobs_are_added(api: Api):
    expected = [api.submit(name=f"j{i % 3}") for i in range(5)]

    first = api.get("/v1/jobs?page_size=2")
    api.submit(name="later")
    second = api.get(f"/v1/jobs?page_size=2&page_token={first['next_page_token']}")
    api.submit(name="later")
    third = api.get(f"/v1/jobs?page_size=2&page_token={second['next_page_token']}")

    assert ids(first) + ids(second) + ids(third) == expected[::-1]
    assert third["next_page_token"] == ""
    assert third["total_count"] == 7


def test_every_order_pages_through_every_job_once(api: Api):
    expected = {api.submit(name=f"j{i % 3}", scheduling_config={"priority": i % 4}) for i in range(5)}
    orders = ["created_at", "-created_at", "priority", "-priority", "name", "-name", "status", "-status"]

    walked = {order: walk(api, f"/v1/jobs?page_size=2&order_by={order}") for order in orders}

    assert {order: sorted(found) for order, found in walked.items()} == dict.fromkeys(orders, sorted(expected))
    assert walked["created_at"] == sorted(expected)
    assert walked["-name"] == walked["name"][::-1]


def test_page_token_belongs_to_its_list_and_cannot_be_forged(api: Api):
    for _ in range(3):
        api.submit()
    token = api.get("/v1/jobs?page_size=1")["next_page_token"]
    other = api.make_key(Role.VIEWER)

    forged = ("A" if token[0] != "A" else "B") + token[1:]
    for path, key in (
        (f"/v1/jobs?page_token={forged}", None),
        (f"/v1/jobs?page_token={token}&order_by=name", None),
        (f"/v1/jobs?page_token={token}&status=QUEUED", None),
        (f"/v1/jobs?page_token={token}", other),
        (f"/v1/nodes?page_token={token}", None),
        ("/v1/jobs?page_token=%F0%9F%98%80", None),
    ):
        assert api.problem(api.call("GET", path, key=key), 400)["details"][0]["field"] == "page_token"


@pytest.mark.long
def test_same_idempotency_key_gives_the_first_answer_again(api: Api):
    headers = {"Idempotency-Key": "order-1"}

    first = api.post("/v1/jobs", make_document(), headers=headers)
    second = api.post("/v1/modules/scaimind/jobs", make_document(), headers=headers)
    other = api.post("/v1/jobs", make_document(name="other"), headers=headers)

    assert second.status_code == 201
    assert second.json == first.json
    assert second.headers["Location"] == first.headers["Location"]
    assert api.problem(other, 409)["code"] == "IDEMPOTENCY_CONFLICT"
    assert api.get("/v1/jobs")["total_count"] == 1
    assert len(api.dispatcher.admitted) == 1


def test_an_idempotency_key_may_be_used_again_after_its_time(api: Api):
    headers = {"Idempotency-Key": "order-1"}
    first = api.data(api.post("/v1/jobs", make_document(), headers=headers), 201)
    with api.db.write() as session:
        session.execute(update(IdempotentReply).values(created_at=utc_now() - TTL - timedelta(seconds=1)))

    other = api.data(api.post("/v1/jobs", make_document(name="other"), headers=headers), 201)

    assert other["job_id"] != first["job_id"]


def ids(page: dict[str, Any]) -> list[str]:
    return [job["job_id"] for job in page["jobs"]]


def walk(api: Api, path: str) -> list[str]:
    """The ids on every page, in order."""
    found, token = [], ""
    while True:
        page = api.get(f"{path}&page_token={token}")
        found += ids(page)
        token = page["next_page_token"]
        if not token:
            return found
