"""Retrying over HTTP: the child, where it starts from, on what it runs, and what of its parent it keeps."""

import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Checkpoint, Job, JobLabel, WebhookDelivery
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.queues import queues
from tests.builders.controlled import audited, events, job_of, with_checkpoints
from tests.builders.factories import make_document, make_job, make_node, make_webhook
from tests.systems.apps import SECRET_KEY, Api

SECRETS = {
    "training_config.environment.HF_TOKEN": "hf_secret-of-the-environment",
    "output_config.hub_token": "hub-secret-of-the-output",
    "data_config.sources.0.path": "https://data.example.org/train.jsonl?sig=secret-of-the-url",
    "forwarded.user": "secret-token-of-the-user",
}
RESUME = "training_config.resume_from_checkpoint"


def ended_job(api: Api, state: JobState = JobState.FAILED, **document: Any) -> str:
    """A job that was submitted and has ended."""
    job_id = api.submit(**document)
    with api.db.write() as session:
        session.get_one(Job, job_id).status = state
    return job_id


def with_secrets(api: Api) -> str:
    document = make_document(
        training_config={"environment": {"HF_TOKEN": SECRETS["training_config.environment.HF_TOKEN"], "MODE": "x"}},
        output_config={"hub_token": SECRETS["output_config.hub_token"]},
        data_config={"sources": [{"path": SECRETS["data_config.sources.0.path"], "format": "jsonl"}]},
    )
    answer = api.post("/v1/jobs", document, headers={"X-User-Token": SECRETS["forwarded.user"]})
    job_id = str(api.data(answer, 201)["job_id"])
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.FAILED
    return job_id


def retry(api: Api, job_id: str, body: Any = None, **request: Any) -> dict[str, Any]:
    return dict(api.data(api.post(f"/v1/jobs/{job_id}/retry", body, **request), 201))


def refused(api: Api, job_id: str, body: Any = None, status: int = 400, **request: Any) -> dict[str, Any]:
    before = job_ids(api)
    problem = api.problem(api.post(f"/v1/jobs/{job_id}/retry", body, **request), status)
    assert job_ids(api) == before
    return problem


def job_ids(api: Api) -> set[str]:
    with api.db.read() as session:
        return set(session.scalars(select(Job.id)))


def opened(api: Api, job_id: str) -> dict[str, Any]:
    return SecretBox(SECRET_KEY).open(job_of(api, job_id).sealed_secrets)


def config(job: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, but for where it starts from."""
    parts = json.loads(json.dumps({name: part for name, part in job.items() if name.endswith("_config")}))
    parts["training_config"].pop("resume_from_checkpoint", None)
    return {**parts, "name": job["name"], "labels": job["labels"]}


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_job_that_has_ended_gets_a_child_that_does_the_same(api: Api, state: JobState):
    parent = ended_job(api, state, labels={"team": "a"}, training_config={"max_retries": 7})

    answer = api.post(f"/v1/jobs/{parent}/retry")

    child = api.data(answer, 201)
    assert answer.headers["Location"] == f"/v1/jobs/{child['job_id']}"
    assert (child["status"], child["parent_job_id"], child["child_job_ids"]) == ("PENDING", parent, [])
    old = api.get(f"/v1/jobs/{parent}")
    assert (old["status"], old["child_job_ids"]) == (state, [child["job_id"]])
    assert config(child) == config(old)
    # Only reads compute them: the answer to the retry does not wait for them.
    outlook = {"estimated_start_at": None, "queue_position": None, "memory_estimate": None, "evaluations": None}
    assert api.get(f"/v1/jobs/{child['job_id']}") | outlook == child
    assert api.dispatcher.admitted[-1] == (child["job_id"], "default", 5)


@pytest.mark.both_databases
def test_both_directions_of_the_tree_are_shown_and_listed(api: Api):
    parent = ended_job(api)
    children = [retry(api, parent)["job_id"] for _ in range(2)]
    with api.db.write() as session:
        session.get_one(Job, children[0]).status = JobState.FAILED
    grandchild = retry(api, children[0])["job_id"]

    assert api.get(f"/v1/jobs/{parent}")["child_job_ids"] == children
    assert api.get(f"/v1/jobs/{children[0]}")["child_job_ids"] == [grandchild]
    listed = api.get(f"/v1/jobs?parent_job_id={parent}&order_by=created_at")["jobs"]
    assert [job["job_id"] for job in listed] == children
    with api.db.write() as session:
        session.get_one(Job, grandchild).status = JobState.FAILED
    assert api.call("DELETE", f"/v1/jobs/{children[1]}").status_code == 409
    assert api.call("DELETE", f"/v1/jobs/{parent}").status_code == 204
    assert api.get(f"/v1/jobs/{children[1]}")["parent_job_id"] is None


def test_history_audit_and_webhooks_tell_of_it(api: Api):
    parent = ended_job(api)
    made = with_checkpoints(api, parent)
    with api.db.write() as session:
        make_webhook(session, key=SECRET_KEY)
    before = len(events(api, parent))

    child = retry(api, parent)["job_id"]

    (event,) = events(api, child)
    linked = {"parent_job_id": parent, "checkpoint_id": made[20]}
    assert (event["type"], event["data"]) == ("job.submitted", linked)
    assert audited(api, "job.submit")[-1] == (child, linked)
    done = {"child_job_id": child, "checkpoint_id": made[20], "resources": {}}
    assert audited(api, "job.retry") == [(parent, done)]
    assert len(events(api, parent)) == before, "nothing happens to a job that has ended"
    with api.db.read() as session:
        (delivery,) = session.scalars(select(WebhookDelivery))
    assert delivery.event_type == "job.submitted"


def test_what_was_changed_since_submission_is_kept(api: Api):
    parent = api.submit(labels={"team": "a"})
    api.call("PATCH", f"/v1/jobs/{parent}", json={"priority": 9, "labels": {"team": "b"}})
    with api.db.write() as session:
        job = session.get_one(Job, parent)
        job.status, job.foreign = JobState.FAILED, {"other": {"x": 1, "deleted": True}}

    child = retry(api, parent)

    assert (child["labels"], child["scheduling_config"]["priority"]) == ({"team": "b"}, 9)
    stored = job_of(api, child["job_id"])
    assert (stored.priority, stored.foreign) == (9, {"other": {"x": 1}})
    with api.db.read() as session:
        labels = session.scalars(select(JobLabel).where(JobLabel.job_id == stored.id))
        assert [(label.key, label.value) for label in labels] == [("team", "b")]


@pytest.mark.parametrize(
    ("body", "step"),
    [(None, 20), ({"checkpoint_id": ""}, 20), ({"checkpoint_id": 10}, 10), ({"from_start": True}, None)],
)
def test_child_starts_from_the_newest_a_named_or_no_checkpoint(api: Api, body: Any, step: int | None):
    parent = ended_job(api)
    made = with_checkpoints(api, parent)
    if body and body.get("checkpoint_id"):
        body = {"checkpoint_id": made[body["checkpoint_id"]]}

    child = retry(api, parent, body)

    start = made[step] if step is not None else None
    assert job_of(api, child["job_id"]).resume_checkpoint_id == start
    assert child["training_config"].get("resume_from_checkpoint") == start


def test_child_of_a_job_that_resumes_from_its_best_starts_from_it(api: Api):
    parent = ended_job(
        api, output_config={"checkpoint": {"resume_from_best": True}}, data_config={"validation_split": 0.5}
    )
    made = with_checkpoints(api, parent)

    assert job_of(api, retry(api, parent)["job_id"]).resume_checkpoint_id == made[10]


def test_job_that_saved_nothing_is_done_again_from_where_it_began(api: Api):
    first = ended_job(api)
    made = with_checkpoints(api, first)
    parent = ended_job(api, training_config={"resume_from_checkpoint": f"{first}:best"})
    with_checkpoints(api, first, best=None, steps=(30, 40))

    assert job_of(api, retry(api, parent)["job_id"]).resume_checkpoint_id == made[10]
    assert job_of(api, retry(api, parent, {"from_start": True})["job_id"]).resume_checkpoint_id is None
    with api.db.write() as session:
        session.get_one(Checkpoint, made[10]).deleted_at = utc_now()
    assert "from_start: true" in refused(api, parent)["message"]


def test_checkpoint_of_another_job_will_do_if_it_is_of_the_same_kind(api: Api):
    parent, sibling, other = ended_job(api), ended_job(api), ended_job(api, data_config={"batch_size": 3})
    alike, different = with_checkpoints(api, sibling)[10], with_checkpoints(api, other)[10]

    assert job_of(api, retry(api, parent, {"checkpoint_id": alike})["job_id"]).resume_checkpoint_id == alike
    problem = refused(api, parent, {"checkpoint_id": different})
    assert problem["details"][0]["field"] == "checkpoint_id"
    assert "data_config" in problem["message"]


def test_checkpoint_that_the_project_has_not_is_refused(api: Api):
    parent = ended_job(api)
    with api.db.write() as session:
        stranger = make_job(session, state=JobState.FAILED, project="other").id
    foreign = with_checkpoints(api, stranger)[20]

    said = set()
    for checkpoint_id in ("ckpt-nothing", parent, f"{parent}:best", foreign):
        problem = refused(api, parent, {"checkpoint_id": checkpoint_id})
        assert problem["details"][0]["field"] == "checkpoint_id"
        said.add(problem["message"].replace(checkpoint_id, "X"))

    assert len(said) == 1, "what is another project's is as unknown as what is not there"
    both = {"checkpoint_id": "ckpt-1", "from_start": True}
    assert "not both" in refused(api, parent, both)["message"]


def test_new_resources_are_laid_over_the_old_ones(api: Api):
    parent = ended_job(
        api,
        resource_config={"gpu_count": 1, "device_type": "cpu", "cpu_cores": 2, "ram_min_mb": 64},
        training_config={"framework": {"distributed": {"world_size": 1}}},
    )

    child = retry(
        api, parent, {"modify_resources": True, "new_resource_config": {"gpu_count": 2, "cpu_cores": 0, "gpu_type": ""}}
    )

    resources = child["resource_config"]
    assert (resources["gpu_count"], resources["cpu_cores"], resources["ram_min_mb"]) == (2, 0, 64)
    assert resources["device_type"] == "cpu"
    assert child["training_config"]["framework"]["distributed"]["world_size"] == 2
    assert audited(api, "job.retry")[0][1]["resources"] == {"gpu_count": 2, "cpu_cores": 0, "gpu_type": ""}
    assert api.get(f"/v1/jobs/{parent}")["resource_config"]["gpu_count"] == 1


def test_gpus_that_were_asked_for_can_be_given_up(api: Api):
    with api.db.write() as session:
        make_node(session, "gpus", device_type="a100", memory_mb=81920, simulated=True)
        make_node(session, "cpus")
    parent = ended_job(api, resource_config={"gpu_count": 1, "device_type": "cuda", "gpu_type": "A100"})
    asked = {"device_type": "cpu", "gpu_type": ""}

    child = retry(api, parent, {"modify_resources": True, "new_resource_config": asked})

    assert child["resource_config"]["device_type"] == "cpu"


def test_a_part_of_a_gpu_can_be_made_another_one_or_all_of_it(api: Api):
    with api.db.write() as session:
        make_node(session, "gpus", device_type="a100", memory_mb=81920, simulated=True)
    parent = ended_job(api, resource_config={"gpu_fraction": 0.5, "device_type": "auto"})

    def child(**asked: Any) -> dict[str, Any]:
        resources = retry(api, parent, {"modify_resources": True, "new_resource_config": asked})["resource_config"]
        return {name: value for name, value in resources.items() if name in (*asked, "gpu_fraction")}

    assert child(gpu_fraction=0.25) == {"gpu_fraction": 0.25}
    assert child(gpu_fraction=0, gpu_count=2) == {"gpu_count": 2}
    assert child(gpu_fraction=0, gpu_memory_request_mb=9000) == {"gpu_memory_request_mb": 9000}


@pytest.mark.parametrize("flag", [{}, {"modify_resources": False}])
def test_new_resources_count_only_when_it_is_said_so(api: Api, flag: dict[str, Any]):
    parent = ended_job(api)

    child = retry(api, parent, {"new_resource_config": {"gpu_count": 2}, **flag})

    assert child["resource_config"]["gpu_count"] == 1


@pytest.mark.parametrize(
    ("resources", "status", "field"),
    [
        ({"gpu_count": 0}, 400, "gpu_count"),
        ({"gpu_count": 1000}, 400, "gpu_count"),
        ({"node_count": 2}, 400, "node_count"),
        ({"gpu_count": "2"}, 422, "gpu_count"),
        ({"gpus": 2}, 422, "gpus"),
    ],
)
def test_new_resources_are_checked_as_at_submission(
    sqlite_api: Api, resources: dict[str, Any], status: int, field: str
):
    with sqlite_api.db.write() as session:
        make_node(session)
    parent = ended_job(sqlite_api)

    problem = refused(sqlite_api, parent, {"modify_resources": True, "new_resource_config": resources}, status)

    assert problem["details"][0]["field"] == f"new_resource_config.{field}"


def test_secrets_go_with_the_child_and_are_never_shown(api: Api):
    parent = with_secrets(api)

    child = retry(api, parent)

    assert opened(api, parent) == opened(api, child["job_id"]) == SECRETS
    assert child["training_config"]["environment"] == {"HF_TOKEN": "***", "MODE": "x"}
    stored = json.dumps(job_of(api, child["job_id"]).spec)
    shown = json.dumps([child, events(api, child["job_id"]), audited(api, "job.retry"), stored])
    assert [secret for secret in SECRETS.values() if secret in shown] == []
    with api.db.write() as session:
        session.get_one(Job, child["job_id"]).status = JobState.FAILED
    assert opened(api, retry(api, child["job_id"])["job_id"]) == SECRETS


def test_secrets_of_new_resources_are_never_shown(sqlite_api: Api):
    custom = {"framework": {"type": "CUSTOM", "custom_command": ["true"]}, "base_model": {"model_id": "none"}}
    parent = ended_job(sqlite_api, training_config=custom)
    mount = {"path": "/own", "type": "files", "files": [{"name": "a", "content": "opensesame"}], "required": False}

    child = retry(sqlite_api, parent, {"modify_resources": True, "new_resource_config": {"mounts": [mount]}})

    assert opened(sqlite_api, child["job_id"]) == {"resource_config.mounts.0.files.0.content": "opensesame"}
    told = json.dumps([audited(sqlite_api, "job.retry"), child, events(sqlite_api, child["job_id"])])
    assert ('"path": "/own"' in told, "opensesame" in told) == (True, False)


def test_a_newer_token_of_the_user_replaces_the_old_one(api: Api):
    parent = with_secrets(api)

    child = retry(api, parent, headers={"X-User-Token": "newer"})

    assert opened(api, child["job_id"]) == {**SECRETS, "forwarded.user": "newer"}


def test_secrets_of_another_key_are_not_lost_in_silence(sqlite_api: Api):
    parent = with_secrets(sqlite_api)
    with sqlite_api.db.write() as session:
        other = SecretBox(Fernet.generate_key().decode())
        session.get_one(Job, parent).sealed_secrets = other.seal(SECRETS)

    assert "does not have" in refused(sqlite_api, parent, status=409)["message"]


@pytest.mark.parametrize("state", sorted(set(JobState) - TERMINAL))
def test_only_a_job_that_has_ended_is_retried(sqlite_api: Api, state: JobState):
    parent = ended_job(sqlite_api, state)

    problem = refused(sqlite_api, parent, status=409)

    assert problem["code"] == "INVALID_STATE"
    assert state in problem["message"]


@pytest.mark.both_databases
def test_retry_under_one_key_makes_one_child(api: Api):
    parent = ended_job(api)
    headers = {"Idempotency-Key": "once"}

    first, again = (api.post(f"/v1/jobs/{parent}/retry", headers=headers) for _ in range(2))

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json == again.json
    assert first.headers["Location"] == again.headers["Location"]
    assert len(api.get(f"/v1/jobs/{parent}")["child_job_ids"]) == 1


def test_full_queue_takes_no_child(sqlite_api: Api):
    parent = ended_job(sqlite_api)
    with sqlite_api.db.write() as session:
        queues.ensure(session, "default").max_waiting_jobs = 0

    assert refused(sqlite_api, parent, status=429)["code"] == "QUOTA_EXCEEDED"


def test_document_that_rules_refuse_by_now_is_refused(sqlite_api: Api):
    parent = ended_job(sqlite_api)
    with sqlite_api.db.write() as session:
        job = session.get_one(Job, parent)
        job.spec = {**job.spec, "training_config": {**job.spec["training_config"], "base_model": {"model_id": "/etc"}}}

    problem = refused(sqlite_api, parent)

    assert problem["details"][0]["field"] == "training_config.base_model.model_id"


def test_strangers_and_viewers_do_not_retry(sqlite_api: Api):
    parent = ended_job(sqlite_api)
    stranger, viewer = sqlite_api.make_key(Role.ADMIN, "other"), sqlite_api.make_key(Role.VIEWER)

    refused(sqlite_api, parent, status=404, key=stranger)
    refused(sqlite_api, parent, status=403, key=viewer)
    assert sqlite_api.get(f"/v1/jobs/{parent}")["child_job_ids"] == []


def test_child_belongs_to_the_project_of_its_parent(api: Api):
    owner = api.make_key(Role.USER, "team-a")
    parent = ended_job(api, key=owner)

    child = retry(api, parent)

    assert child["project"] == "team-a"
    assert child["created_by"] != api.get(f"/v1/jobs/{parent}")["created_by"]
