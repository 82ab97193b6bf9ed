"""What `POST /v1/services` and changes of services refuse, in the words of the request; nothing is stored then."""

from typing import Any

import pytest

from app.security.permissions import Role
from tests.builders.factories import make_project
from tests.builders.inference_requests import make_trained
from tests.builders.service_requests import service_request
from tests.systems.apps import Api


def refused(api: Api, body: dict[str, Any], status: int) -> tuple[str, str]:
    """(field, message) of the answer's first detail."""
    problem = api.problem(api.post("/v1/services", body), status)
    assert api.get("/v1/services")["total_count"] == 0
    detail = problem["details"][0]
    return str(detail["field"]), str(detail["message"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "Not a name"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": ""}, "name"),
        ({"model": None}, "model"),
        ({"model": {"model_uri": "a", "unknown": 1}}, "model.unknown"),
        ({"task": "loglikelihood"}, "task"),
        ({"engine": "tgi"}, "engine"),
        ({"replicas": {"min": -1}}, "replicas.min"),
        ({"replicas": {"max": 0}}, "replicas.max"),
        ({"replicas": {"max": 1001}}, "replicas.max"),
        ({"replicas": {"min": "1"}}, "replicas.min"),
        ({"replicas": {"target_in_flight": 0}}, "replicas.target_in_flight"),
        ({"replicas": {"idle_seconds": 0}}, "replicas.idle_seconds"),
        ({"adapters": {"from": "hub"}}, "adapters.from"),
        ({"adapters": {"source": "none"}}, "adapters.source"),
        ({"adapters": {"max_loaded": 0}}, "adapters.max_loaded"),
        ({"adapters": {"max_rank": 0}}, "adapters.max_rank"),
        ({"limits": {"max_context": 1}}, "limits.max_context"),
        ({"limits": {"max_output_tokens": 0}}, "limits.max_output_tokens"),
        ({"limits": {"max_waiting": -1}}, "limits.max_waiting"),
        ({"limits": {"cold_start_seconds": 3601}}, "limits.cold_start_seconds"),
        ({"defaults": {"temperature": 2.5}}, "defaults.temperature"),
        ({"defaults": {"top_p": 1.5}}, "defaults.top_p"),
        ({"defaults": {"n": 2}}, "defaults.n"),
        ({"scheduling_config": {"max_runtime_seconds": 60}}, "scheduling_config.max_runtime_seconds"),
        ({"scheduling_config": {"on_preemption": "requeue"}}, "scheduling_config.on_preemption"),
        ({"labels": {"a": "b"}}, "labels"),
    ],
)
def test_what_the_schema_does_not_know_is_422(sqlite_api: Api, changes: dict[str, Any], field: str) -> None:
    assert refused(sqlite_api, service_request(**changes), 422)[0] == field


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"replicas": {"min": 3, "max": 2}}, "replicas.min", "contradict"),
        ({"replicas": {"min": 2}}, "replicas.min", "at most 1"),
        ({"limits": {"max_context": 64, "max_output_tokens": 64}}, "limits.max_output_tokens", "no room"),
        ({"defaults": {"top_p": 0.0}}, "defaults.top_p", "no token"),
        ({"task": "embed", "defaults": {"temperature": 0.5}}, "defaults.temperature", "vectors"),
        ({"adapters": {"from": "none", "max_rank": 8}}, "adapters.max_rank", "no adapters"),
        ({"engine": "vllm"}, "engine", "no node offers vllm"),
        ({"model": {}}, "model", "job_id"),
        ({"model": {"model_uri": "/etc"}}, "model.model_uri", "outside"),
        ({"model": {"checkpoint": "best"}}, "model.job_id", "name that in job_id"),
        ({"model": {"model_uri": "/srv/m", "quantization": "bnb-4bit"}}, "model.quantization", "GPUs"),
        ({"resource_config": {"node_count": 2}}, "resource_config.node_count", "one node"),
        ({"scheduling_config": {"queue": "fast"}}, "scheduling_config.queue", "fast"),
        ({"environment": {"LD_PRELOAD": "x"}}, "environment.LD_PRELOAD", "reserved"),
    ],
)
def test_what_has_no_meaning_is_400(sqlite_api: Api, changes: dict[str, Any], field: str, said: str) -> None:
    found = refused(sqlite_api, service_request(**changes), 400)

    assert (found[0], said in found[1]) == (field, True), found


def test_a_reward_model_gives_no_answers(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        job_id = make_trained(session, training_type="RLHF", hyperparameters={"algorithm": "reward"}).id

    assert "reward model" in refused(sqlite_api, service_request(model={"job_id": job_id}), 400)[1]


def test_a_model_of_another_project_does_not_exist(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        make_project(session, "other")
        job_id = make_trained(session, project="other").id

    answer = sqlite_api.post(
        "/v1/services", service_request(model={"job_id": job_id}), key=sqlite_api.make_key(Role.USER)
    )

    assert sqlite_api.problem(answer, 404)["details"][0]["field"] == "model.job_id"


@pytest.mark.both_databases
def test_a_name_is_taken_until_its_service_has_ended(api: Api) -> None:
    api.data(api.post("/v1/services", service_request()), 201)

    problem = api.problem(api.post("/v1/services", service_request()), 409)

    assert problem["details"][0]["field"] == "name"
    assert "support" in problem["message"]
    assert api.get("/v1/services")["total_count"] == 1


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"replicas": {"min": 5}}, 400, "replicas.min"),
        ({"replicas": {"max": 0}}, 422, "replicas.max"),
        ({"limits": {"max_context": 8, "max_output_tokens": 9}}, 400, "limits.max_output_tokens"),
        ({"model": {"model_uri": "/etc"}}, 400, "model.model_uri"),
        ({"name": "other"}, 422, "name"),
        ({"task": "embed"}, 422, "task"),
    ],
)
def test_changes_are_checked_as_the_whole_document(
    sqlite_api: Api, changes: dict[str, Any], status: int, field: str
) -> None:
    made = sqlite_api.data(sqlite_api.post("/v1/services", service_request()), 201)
    before = sqlite_api.get(f"/v1/services/{made['service_id']}")

    answer = sqlite_api.call("PATCH", "/v1/services/support", json=changes)

    assert sqlite_api.problem(answer, status)["details"][0]["field"] == field
    assert sqlite_api.get("/v1/services/support") == before


def test_a_change_of_nothing_is_refused(sqlite_api: Api) -> None:
    sqlite_api.data(sqlite_api.post("/v1/services", service_request()), 201)

    sqlite_api.problem(sqlite_api.call("PATCH", "/v1/services/support", json={}), 400)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/replicas"),
        ("GET", "/events"),
        ("GET", "/metrics"),
        ("GET", "/logs"),
    ],
)
def test_services_of_others_do_not_exist(sqlite_api: Api, method: str, path: str) -> None:
    made = sqlite_api.data(sqlite_api.post("/v1/services", service_request()), 201)
    stranger = sqlite_api.make_key(Role.ADMIN, "other")
    body = {"json": {"replicas": {"max": 2}}} if method == "PATCH" else {}

    for handle in (made["service_id"], "support"):
        answer = sqlite_api.call(method, f"/v1/services/{handle}{path}", key=stranger, **body)
        assert "no service" in sqlite_api.problem(answer, 404)["message"]


def test_viewers_read_services_and_change_none(sqlite_api: Api) -> None:
    sqlite_api.data(sqlite_api.post("/v1/services", service_request()), 201)
    viewer = sqlite_api.make_key(Role.VIEWER)

    assert sqlite_api.get("/v1/services/support", key=viewer)["name"] == "support"
    for method, path in (("POST", ""), ("POST", "/support/pause"), ("DELETE", "/support")):
        answer = sqlite_api.call(
            method, f"/v1/services{path}", key=viewer, json=service_request() if not path else None
        )
        sqlite_api.problem(answer, 403)


def test_a_replica_that_is_not_there_is_named(sqlite_api: Api) -> None:
    sqlite_api.data(sqlite_api.post("/v1/services", service_request()), 201)

    answer = sqlite_api.call("GET", "/v1/services/support/logs?replica=7")

    assert "no replica 7; its replicas are none yet" in sqlite_api.problem(answer, 404)["message"]
