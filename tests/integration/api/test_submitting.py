"""What one submission costs the database, and that saving there gives nothing away."""

from pathlib import Path

import pytest

from app.security import key_cache
from app.security.permissions import Role
from app.services.access import api_keys, projects
from tests.builders.factories import make_document, make_node
from tests.builders.statements import statements
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, a key that was used before is one that is remembered."""
    monkeypatch.setattr(key_cache, "TTL_SECONDS", 60.0)


def submit(api: Api, key: str, **request: object) -> int:
    return api.post("/v1/jobs", make_document(labels={"team": "a"}), key=key, **request).status_code


def test_submission_is_one_statement_and_on_sqlite_one_for_each_table(api: Api) -> None:
    key = api.make_key(Role.USER)
    submit(api, key)

    with statements(api.db, of_writers=True) as sent:
        assert submit(api, key) == 201

    one_by_one = ["INSERT INTO job", "INSERT INTO job_event", "INSERT INTO audit_entry", "INSERT INTO job_label"]
    expected = one_by_one if api.db.engine.dialect.name == "sqlite" else ["WITH given AS"]
    assert [" ".join(statement.split()[:3]) for statement in sent] == expected


def test_key_that_was_good_a_moment_ago_submits_nothing_once_it_is_revoked(api: Api) -> None:
    key = api.make_key(Role.USER)
    assert submit(api, key) == 201
    who = api_keys.authenticate(api.db, key)

    api_keys.revoke(api.db, api_keys.authenticate(api.db, api.key), who.key_id)  # as another API process would

    assert api.problem(api.post("/v1/jobs", make_document(), key=key), 401)["code"] == "AUTH_TOKEN_INVALID"
    assert api.problem(api.post("/v1/jobs?dry_run=true", make_document(), key=key), 401)
    assert api.get("/v1/jobs?page_size=1")["total_count"] == 1
    (denied,) = [entry for entry in api.get("/v1/audit?outcome=denied")["entries"] if entry["actor"] == who.key_id][:1]
    assert denied["project"] == "default"


def test_key_that_was_good_a_moment_ago_submits_nothing_once_it_has_expired(api: Api) -> None:
    made = api.data(api.post("/v1/keys", {"role": "user"}), 201)
    assert submit(api, made["key"]) == 201

    api.data(api.post(f"/v1/keys/{made['key_id']}/rotate", {"grace_seconds": 0}), 201)

    assert submit(api, made["key"]) == 401


def test_key_that_is_revoked_is_not_given_its_earlier_answers(api: Api) -> None:
    key, headers = api.make_key(Role.USER), {"Idempotency-Key": "once"}
    assert submit(api, key, headers=headers) == 201

    api_keys.revoke(api.db, api_keys.authenticate(api.db, api.key), api_keys.authenticate(api.db, key).key_id)

    assert submit(api, key, headers=headers) == 401


def test_project_that_is_deleted_takes_no_submission_of_its_keys(api: Api) -> None:
    key = api.make_key(Role.USER, "short")
    assert api.post("/v1/jobs?dry_run=true", make_document(), key=key).status_code == 200

    storage = api.app.extensions["trainyard"].plane.storage
    projects.delete(api.db, storage, api_keys.authenticate(api.db, api.key), "short")

    assert submit(api, key) in (401, 404)


def test_last_use_of_a_key_that_only_submits_is_noted(api: Api) -> None:
    made = api.data(api.post("/v1/keys", {"role": "user"}), 201)

    submit(api, made["key"])

    assert api.get(f"/v1/keys/{made['key_id']}")["last_used_at"] is not None


def test_root_may_lead_elsewhere_from_one_moment_to_the_next(sqlite_api: Api, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (sqlite_api.inputs / "model").mkdir()
    document = make_document(training_config={"base_model": {"model_id": f"{sqlite_api.inputs}/model"}})
    sqlite_api.data(sqlite_api.post("/v1/jobs", document), 201)

    (sqlite_api.inputs / "model").rmdir()
    (sqlite_api.inputs / "model").symlink_to(secret)

    assert sqlite_api.problem(sqlite_api.post("/v1/jobs", document), 400)["code"] == "INVALID_ARGUMENT"


def test_field_without_effect_is_named_in_the_answer_the_dry_run_and_the_history(api: Api) -> None:
    document = make_document(output_config={"checkpoint": {"save_on_each_node": True}})

    planned = api.data(api.post("/v1/jobs?dry_run=true", document))
    submitted = api.data(api.post("/v1/jobs", document), 201)

    (warning,) = submitted["warnings"]
    assert warning.startswith("output_config.checkpoint.save_on_each_node: checkpoints are saved once")
    assert planned["warnings"][0] == warning
    events = api.get(f"/v1/jobs/{submitted['job_id']}/events")["events"]
    (recorded,) = [event for event in events if event["reason"] == "NOT_ACTED_ON"]
    assert recorded["data"]["warnings"] == [warning]


def test_submission_of_what_is_acted_on_warns_of_nothing(api: Api) -> None:
    document = make_document(output_config={"checkpoint": {"save_on_each_node": False}})

    assert api.data(api.post("/v1/jobs", document), 201)["warnings"] == []


_AUTO = {"device_type": "auto"}


def test_backend_that_cpu_slots_do_not_use_is_warned_of_and_memory_of_a_gpu_is_refused(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, devices=2)
    document = make_document()
    document["training_config"]["framework"]["distributed"] = {"backend": "nccl"}

    submitted = api.data(api.post("/v1/jobs", document), 201)
    planned = api.data(api.post("/v1/jobs?dry_run=true", document))
    refused = api.problem(api.post("/v1/jobs", make_document(resource_config={"gpu_memory_min_mb": 9, **_AUTO})), 400)

    (warning,) = submitted["warnings"]
    assert warning == (
        "training_config.framework.distributed.backend: nccl is for GPUs; the ranks of CPU slots use gloo"
    )
    assert warning in planned["warnings"]
    events = api.get(f"/v1/jobs/{submitted['job_id']}/events")["events"]
    assert [event["data"]["warnings"] for event in events if event["reason"] == "NOT_ACTED_ON"] == [[warning]]
    assert refused["details"][0]["field"] == "resource_config.gpu_memory_min_mb"
    assert "leave gpu_memory_min_mb out to train on CPU slots" in refused["message"]


def test_backend_of_cpu_slots_is_refused_where_the_job_gets_gpus(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, device_type="a100", memory_mb=40_960)
    document = make_document(resource_config=_AUTO)
    document["training_config"]["framework"]["distributed"] = {"backend": "gloo"}

    refused = api.problem(api.post("/v1/jobs", document), 400)

    assert refused["details"][0]["field"] == "training_config.framework.distributed.backend"
    document["training_config"]["framework"]["distributed"] = {"backend": "nccl"}
    assert api.data(api.post("/v1/jobs", document), 201)["warnings"] == []
