"""Mistakes that only the installation can tell: queues, projects, checkpoints, models, benchmarks, queries."""

import json
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.security.permissions import Role
from tests.builders.factories import make_document, make_job, make_node, make_project, make_queue
from tests.builders.mistakes import Mistake, says
from tests.systems.apps import Api

SUBMITTED = [
    Mistake(
        {"scheduling_config": {"queue": "Batch"}},
        "scheduling_config.queue",
        "no queue 'Batch' (did you mean batch?); known: batch, default",
    ),
    Mistake(
        {"scheduling_config": {"queue": "defualt"}},
        "scheduling_config.queue",
        "no queue 'defualt' (did you mean default?); known: batch, default",
    ),
    Mistake({"scheduling_config": {"queue": "x"}}, "scheduling_config.queue", "no queue 'x'; known: batch, default"),
    Mistake(
        {"resource_config": {"gpu_type": "H100"}},
        "resource_config.gpu_type",
        "no node ever had a GPU of type 'h100'; known: a100; the largest that would fit is 2 a100 on node gpus",
    ),
    Mistake(
        {"resource_config": {"gpu_count": 3, "gpu_type": "A100-80G"}},
        "resource_config.gpu_count",
        "no node could ever hold this job; the largest gpu_count that would fit is 2, on node gpus",
    ),
    Mistake(
        {"training_config.evaluations": [{"benchmarks": [{"name": "perplexty", "dataset": "/srv/v.jsonl"}]}]},
        "training_config.evaluations.0.benchmarks.0.name",
        "there is no benchmark 'perplexty' (did you mean perplexity?); known: loss, perplexity, …",
    ),
    Mistake(
        {"training_config.resume_from_checkpoint": "ckpt-of-another"},
        "training_config.resume_from_checkpoint",
        "…ckpt-of-another…",
    ),
]


@pytest.fixture
def installation(api: Api) -> Api:
    with api.db.write() as session:
        make_queue(session, "batch")
        make_project(session, "secret-project")
        make_node(session, "gpus", devices=2, device_type="a100", memory_mb=81920)
    return api


@pytest.mark.parametrize("mistake", SUBMITTED, ids=str)
def test_mistake_of_a_submission_is_named_with_its_way_out(installation: Api, mistake: Mistake) -> None:
    error = installation.problem(
        installation.post("/v1/jobs", mistake.document(resource_config={"device_type": "auto"})), 400
    )

    (detail,) = error["details"]
    assert detail["field"] == mistake.field
    assert says(detail["message"], mistake.message), detail["message"]


@pytest.mark.parametrize(
    ("verb", "message"), [("resume", "…COMPLETED…"), ("pause", "…COMPLETED…"), ("cancel", "…COMPLETED…")]
)
def test_verb_that_a_job_is_past_names_its_state_and_what_is_allowed(
    installation: Api, verb: str, message: str
) -> None:
    with installation.db.write() as session:
        job_id = make_job(session, state=JobState.COMPLETED).id

    error = installation.problem(installation.post(f"/v1/jobs/{job_id}/{verb}", {}), 409)

    assert says(error["message"], message), error["message"]


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("page_sise=5", "page_sise", "unknown field (did you mean page_size?)"),
        ("page_size=500", "page_size", "'500' must be from 1 to 100"),
        ("status=TRAINNG", "status.0", "'TRAINNG' must be one of PENDING, …(did you mean TRAINING?)"),
        ("order_by=creation", "order_by", "'creation' must be one of created_at, …"),
    ],
)
def test_mistake_in_a_query_is_named(api: Api, query: str, field: str, message: str) -> None:
    (detail,) = api.problem(api.call("GET", f"/v1/jobs?{query}"), 422)["details"]

    assert detail["field"] == field
    assert says(detail["message"], message), detail["message"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("tiny-modle", "model: no model tiny-modle (did you mean tiny-model?); there are: tiny-model…"),
        ("gpt-4o", "model: no model gpt-4o; there are: tiny-model…"),
    ],
)
def test_model_that_is_not_named_here_is_told_which_are(api: Api, model: str, message: str) -> None:
    api.data(api.post("/v1/registered-models", {"name": "tiny-model", "location": "/srv/models/tiny"}), 201)

    answer = api.post("/v1/fine_tuning/jobs", {"model": model, "training_file": "file-1"})

    assert answer.status_code == 404
    assert answer.json is not None
    assert says(answer.json["error"]["message"], message), answer.json


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/projects/defualt", "no project defualt (did you mean default?)"),
        ("/v1/jobs?project=defualt", "no project defualt (did you mean default?)"),
        ("/v1/projects/something-else", "no project something-else"),
        ("/v1/nodes/gpus-", "no node 'gpus-' (did you mean gpus?); GET /v1/nodes lists them"),
        ("/v1/nodes/other", "no node 'other'; GET /v1/nodes lists them"),
    ],
)
def test_name_that_is_not_known_is_told_which_may_be_meant(installation: Api, path: str, message: str) -> None:
    for key in (installation.key, installation.make_key(Role.USER)):
        assert installation.problem(installation.call("GET", path, key=key), 404)["message"] == message


def test_what_the_caller_may_not_see_is_never_suggested(installation: Api) -> None:
    key = installation.make_key(Role.USER)

    for body in (make_document(), make_document(scheduling_config={"queue": "secret-projct"})):
        answer = installation.post("/v1/jobs?project=secret-projct", body, key=key)
        assert answer.status_code >= 400
        assert "secret-project" not in answer.get_data(as_text=True)
    assert "secret-project" not in installation.call("GET", "/v1/projects/secret-projct", key=key).get_data(
        as_text=True
    )


def test_numbers_and_booleans_of_hyperparameters_are_stored_as_text(api: Api) -> None:
    values: dict[str, Any] = {
        "learning_rate": 2e-5,
        "max_steps": 10,
        "gradient_checkpointing": True,
        "optim": "adamw_torch",
    }

    job_id = api.submit(training_config={"hyperparameters": values})

    stored = api.get(f"/v1/jobs/{job_id}")["training_config"]["hyperparameters"]
    assert stored == {
        "learning_rate": "2e-05",
        "num_train_epochs": "1",
        "max_steps": "10",
        "gradient_checkpointing": "true",
        "optim": "adamw_torch",
    }


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "{}", "[1]"])
def test_hyperparameters_that_are_no_finite_scalars_are_refused(api: Api, text: str) -> None:
    body = json_with(text)

    answer = api.call("POST", "/v1/jobs", data=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422), answer.get_data(as_text=True)


def json_with(text: str) -> str:
    document = json.dumps(make_document(training_config={"hyperparameters": {"learning_rate": "HERE"}}))
    return document.replace('"HERE"', text)
