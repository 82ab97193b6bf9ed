"""Jobs whose model is a running service: what their documents become, and what a service can't answer."""

from typing import Any

import pytest

from app.domain.spec.asked_models import asked_models
from app.models import Job, Service
from app.security.permissions import Role
from tests.builders.controlled import job_of
from tests.builders.inference_requests import make_batch, make_features, make_trained
from tests.builders.service_requests import service_request
from tests.systems.apps import Api

SUPPORT = {"service": "support"}


def serve(api: Api, **changes: Any) -> None:
    api.data(api.post("/v1/services", service_request(**changes)), 201)


def submit(api: Api, body: dict[str, Any]) -> str:
    return str(api.data(api.post("/v1/inference", body), 201)["job_id"])


def refused(api: Api, path: str, body: dict[str, Any], status: int) -> tuple[str, str]:
    detail = api.problem(api.post(path, body), status)["details"][0]
    return str(detail["field"]), str(detail["message"])


@pytest.mark.both_databases
def test_job_that_asks_a_service_has_its_model_without_weights(api: Api) -> None:
    serve(api)

    job_id = submit(api, make_batch(model=SUPPORT))

    document = job_of(api, job_id).document
    assert document.training_config.base_model.model_id == "/srv/models/tiny"
    assert document.inference is not None
    assert document.inference.model.service == "support"
    assert asked_models(document) == {"support"}
    assert api.get(f"/v1/inference/{job_id}")["model"] == {"service": "support", "quantization": "none"}


def test_service_of_a_trained_adapter_brings_its_job(api: Api) -> None:
    with api.db.write() as session:
        trained = make_trained(session, adapter=True, training_type="LORA", hyperparameters={"lora_r": "4"}).id
    serve(api, model={"job_id": trained})

    model = job_of(api, submit(api, make_batch(model=SUPPORT))).document.inference

    assert model is not None
    assert (model.model.job_id, model.model.adapter, model.model.service) == (trained, True, "support")


def test_evaluation_asks_a_service_and_is_named_after_it(api: Api) -> None:
    serve(api)
    exact = {"name": "exact_match", "dataset": "/srv/data/val.jsonl"}
    body = {"model": SUPPORT, "benchmarks": [exact], "resource_config": {"device_type": "cpu"}}

    made = str(api.data(api.post("/v1/evaluations", body), 201)["evaluation_id"])

    shown = api.get(f"/v1/evaluations/{made}")
    assert (shown["model"], shown["name"]) == ({"service": "support", "quantization": "none"}, "evaluation of support")
    for number, name in enumerate(("loss", "choices", "preference")):
        wrong = {**body, "benchmarks": [exact, {"name": name, "dataset": "/srv/data/val.jsonl"}]}
        field, message = refused(api, "/v1/evaluations", wrong, 400)
        assert (number, field) == (number, "benchmarks.1.name")
        assert "needs the model itself" in message


def test_service_of_4_bits_needs_no_gpu_of_the_job(api: Api) -> None:
    serve(api, model={"model_uri": "/srv/models/tiny", "quantization": "bnb-4bit"}, resource_config={})

    reference = job_of(api, submit(api, make_batch(model=SUPPORT))).document.inference

    assert reference is not None
    assert reference.model.quantization == "none"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (make_batch(model={"service": "none-such"}), 404, "model.service"),
        (make_batch(model={"service": ""}), 422, "model.service"),
        (make_batch(model={**SUPPORT, "job_id": "job-1"}), 400, "model.job_id"),
        (make_batch(model={**SUPPORT, "model_uri": "a/b"}), 400, "model.model_uri"),
        (make_batch(model={**SUPPORT, "dtype": "float32"}), 400, "model.dtype"),
        (make_batch(model={**SUPPORT, "quantization": "bnb-4bit"}), 400, "model.quantization"),
        (make_batch(model=SUPPORT, task={"type": "loglikelihood"}), 400, "task.type"),
        (make_batch(model=SUPPORT, task={"type": "score"}), 400, "task.type"),
        (make_batch(model=SUPPORT, task={"type": "requests", "endpoint": "/v1/completions"}), 400, "task.type"),
        (
            make_batch(model=SUPPORT, task={"response_format": {"type": "json_schema", "schema": {}}}),
            400,
            "task.response_format",
        ),
        (make_features(model=SUPPORT), 400, "task.type"),
        (make_batch(model={"service": "vectors"}), 400, "task.type"),
        (make_features(model={"service": "vectors"}, task={"type": "embed", "pooling": "last"}), 400, "task.pooling"),
    ],
)
def test_what_a_service_can_not_answer_is_refused(
    sqlite_api: Api, body: dict[str, Any], status: int, field: str
) -> None:
    serve(sqlite_api)
    serve(sqlite_api, name="vectors", task="embed")

    assert refused(sqlite_api, "/v1/inference", body, status)[0] == field


def test_other_projects_and_ending_services_are_not_asked(sqlite_api: Api) -> None:
    serve(sqlite_api)
    stranger = sqlite_api.make_key(Role.USER, "other")

    assert sqlite_api.post("/v1/inference", make_batch(model=SUPPORT), key=stranger).status_code == 404
    with sqlite_api.db.write() as session:
        session.query(Service).one().status = "ENDING"
    assert refused(sqlite_api, "/v1/inference", make_batch(model=SUPPORT), 409)[0] == "model.service"
    with sqlite_api.db.read() as session:
        assert session.query(Job).count() == 0


def test_a_service_is_no_model_of_a_service(sqlite_api: Api) -> None:
    serve(sqlite_api)

    field, message = refused(sqlite_api, "/v1/services", service_request(name="second", model=SUPPORT), 400)

    assert (field, "not another service" in message) == ("model.service", True)
