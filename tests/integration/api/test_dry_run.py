"""A dry run of a submission: the same checks, a plan, and nothing written."""

from typing import Any

import pytest
from sqlalchemy import func, select

from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.models import AuditEntry, IdempotentReply, Job, JobEvent, Queue
from app.security.permissions import Role
from tests.builders.admitting import admit
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.systems.apps import Api

DRY = "/v1/jobs?dry_run=true"


def rows(api: Api, *models: type) -> list[int]:
    with api.db.read() as session:
        return [session.scalar(select(func.count()).select_from(model)) or 0 for model in models]


def test_plan_names_line_devices_and_nodes(api: Api):
    with api.db.write() as session:
        make_job(session, priority=9)
        make_job(session, priority=5)
        make_job(session, priority=1)
        make_node(session, "big", devices=4)
        make_node(session, "small", devices=1)

    answer = api.data(api.post(DRY, make_document(resource_config={"gpu_count": 2}, labels={"a": "b"})))

    plan = answer["plan"]
    assert answer["valid"] is True
    assert answer["warnings"] == []
    assert (plan["queue"], plan["priority"], plan["queue_position"], plan["project"]) == ("default", 5, 3, "default")
    assert (plan["device_type"], plan["devices"], plan["gpu_type"]) == ("cpu", 2, "")
    assert (plan["training_type"], plan["framework"], plan["max_retries"]) == ("SFT", "HF_TRAINER", 3)
    assert plan["candidate_nodes"] == [{"name": "big", "fits_now": True, "reason": ""}]
    assert plan["resumes_from"] is None


def test_nodes_are_chosen_by_their_labels_and_names(api: Api):
    with api.db.write() as session:
        make_node(session, "far", labels=["rack-1", "nvlink"])
        make_node(session, "near", labels=["rack-2", "nvlink"])

    def tried(**affinities: list[str]) -> Any:
        return api.post(DRY, make_document(resource_config={"gpu_count": 1, **affinities}))

    def candidates(**affinities: list[str]) -> list[str]:
        return [node["name"] for node in api.data(tried(**affinities))["plan"]["candidate_nodes"]]

    assert candidates(required_node_labels=["nvlink"]) == ["far", "near"]
    assert candidates(required_node_labels=["nvlink"], forbidden_node_labels=["far"]) == ["near"]
    assert candidates(required_node_labels=["rack-9|rack-2"]) == ["near"]
    assert candidates(node_affinity=["rack-9"], node_anti_affinity=["nvlink"]) == ["far", "near"]
    either = api.problem(tried(required_node_labels=["rack-8|rack-9"]), 400)
    assert "is labelled rack-8 or rack-9;" in either["message"]
    refused = api.problem(tried(required_node_labels=["rack-9"]), 400)
    assert refused["details"][0]["field"] == "resource_config.required_node_labels"
    assert "far (nvlink, rack-1), near (nvlink, rack-2)" in refused["message"]


def test_dry_run_writes_nothing_and_sends_no_message(api: Api):
    models = (Job, JobEvent, IdempotentReply, AuditEntry)
    before = rows(api, *models)

    answer = api.post(DRY, make_document(), headers={"Idempotency-Key": "the-key"})

    assert answer.status_code == 200
    assert "Location" not in answer.headers
    assert rows(api, *models) == before
    assert api.dispatcher.admitted == []


def test_key_of_a_dry_run_is_free_for_the_submission(api: Api):
    headers = {"Idempotency-Key": "the-key"}
    api.post(DRY, make_document(), headers=headers)

    answer = api.post("/v1/jobs", make_document(), headers=headers)

    assert "Idempotency-Replayed" not in answer.headers
    assert api.data(answer, 201)["job_id"].startswith("job-")


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_config": {"gpu_count": 0}},
        {"resource_config": {"device_type": "cuda", "gpu_type": "H100"}},
        {"resource_config": {"gpu_type": ["H100", "B200"]}},
        {"scheduling_config": {"queue": "none"}},
        {"scheduling_config": {"preemptible": "yes"}},
        {"training_config": {"hyperparameters": {"learning_rat": "1"}}},
        {"training_config": {"resume_from_checkpoint": "ckpt-none"}},
        {"data_config": {"sources": [{"path": "/etc/passwd"}]}},
        {"unknown": 1},
    ],
)
def test_refusals_are_those_of_a_submission(sqlite_api: Api, changes: dict[str, Any]):
    with sqlite_api.db.write() as session:
        make_node(session)
    document = {**make_document(), **changes} if "unknown" in changes else make_document(**changes)

    dry, real = sqlite_api.post(DRY, document), sqlite_api.post("/v1/jobs", document)

    assert real.status_code in (400, 422)
    assert dry.json is not None
    assert real.json is not None
    assert (dry.status_code, dry.json["error"]) == (real.status_code, real.json["error"])


def test_who_may_not_submit_may_not_dry_run(sqlite_api: Api):
    viewer, user = sqlite_api.make_key(Role.VIEWER), sqlite_api.make_key(Role.USER)

    assert sqlite_api.post(DRY, make_document(), key=viewer).status_code == 403
    assert sqlite_api.post(f"{DRY}&project=other", make_document(), key=user).status_code == 404


def test_busy_and_drained_nodes_say_why_not_now(api: Api):
    with api.db.write() as session:
        busy = make_node(session, "busy", devices=1)
        make_node(session, "drained", devices=1, state="drained")
        make_attempt(session, make_job(session), busy)

    answer = api.data(api.post(DRY, make_document()))

    reasons = {node["name"]: node["reason"] for node in answer["plan"]["candidate_nodes"]}
    assert not any(node["fits_now"] for node in answer["plan"]["candidate_nodes"])
    assert "free: 0 on busy" in reasons["busy"]
    assert reasons["drained"] == "is drained"
    assert any("would wait" in warning for warning in answer["warnings"])
    assert answer["plan"]["estimated_wait_seconds"] is None


def test_warnings_tell_of_paused_queue_missing_nodes_and_missing_files(api: Api):
    with api.db.write() as session:
        session.get_one(Queue, "default").is_paused = True
    missing = str(api.inputs / "nowhere")
    (api.folder / "data/files").mkdir(parents=True)  # only who sees every root can say that something is missing

    document = make_document(training_config={"base_model": {"model_id": missing}})
    warnings = api.data(api.post(DRY, document))["warnings"]

    assert any("is paused" in warning for warning in warnings)
    assert any("no node is registered" in warning for warning in warnings)
    assert any("MODEL_NOT_FOUND" in warning and missing in warning for warning in warnings)


def test_plan_names_the_checkpoint_that_the_job_would_start_from(api: Api):
    parent = api.submit()
    with api.db.write() as session:
        job = session.get_one(Job, parent)
        checkpoint = make_checkpoint(session, job).id
        job.latest_checkpoint_id = checkpoint
        job.status = JobState.CANCELLED

    plan = api.data(api.post(DRY, make_document(training_config={"resume_from_checkpoint": parent})))["plan"]

    assert plan["resumes_from"] == checkpoint
    with api.db.read() as session:
        assert session.scalar(select(Job.id).where(Job.resume_checkpoint_id == checkpoint)) is None


def test_job_that_no_node_can_hold_waits_where_it_says_so(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, device_type="a100", memory_mb=80_000)
    waits = {"scheduling_config": {"wait_for_node": True}}

    refused = api.post("/v1/jobs", make_document(resource_config={"gpu_count": 99, "device_type": "cuda"}))
    document = make_document(resource_config={"gpu_count": 99, "device_type": "cuda"}, **waits)
    answer = api.post("/v1/jobs", document)
    rehearsed = api.data(api.post(DRY, document))
    fitting = api.post("/v1/jobs", make_document(resource_config={"gpu_count": 1, "device_type": "cuda"}, **waits))

    said = api.problem(refused, 400)["message"]
    warning = f"resource_config.gpu_count: {said}; the job waits until a node can hold it"
    assert api.data(answer, 201)["warnings"] == [warning]
    assert rehearsed["warnings"][:1] == [warning]
    assert api.data(fitting, 201)["warnings"] == []
    job_id = api.data(answer, 201)["job_id"]
    assert admit(api.db, job_id, ReadingRules(roots=()))
    assert api.get(f"/v1/jobs/{job_id}")["status"] == "QUEUED"
