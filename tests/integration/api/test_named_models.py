"""Inference jobs and evaluations whose model is named: a registered model, a fine-tune, its checkpoint, or a job."""

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.model_names import checkpoint_name
from app.models import Job
from app.services.access.api_keys import ADMINISTRATOR
from app.services.model_registry import fine_tunes, registered
from tests.builders.controlled import job_of
from tests.builders.factories import make_checkpoint
from tests.builders.inference_requests import make_batch, make_trained
from tests.systems.apps import Api


def fine_tuned(api: Api, *, state: JobState = JobState.COMPLETED) -> tuple[str, str]:
    """(the name of a fine-tuned model, its job)."""
    with api.db.write() as session:
        job = make_trained(session, state=state)
        job.created_by = "key-1"
        return fine_tunes.planned(session, job, "tiny", "docs").name, job.id


def submitted(api: Api, model: dict[str, str]) -> Job:
    return job_of(api, api.data(api.post("/v1/inference", make_batch(model=model)), 201)["job_id"])


def test_wrong_name_suggests_also_the_oldest_model(sqlite_api: Api) -> None:
    for name in ("llama-small", *(f"other-{number}" for number in range(20))):
        registered.register(sqlite_api.db, ADMINISTRATOR, name, "/srv/models/tiny")

    answer = sqlite_api.call("GET", "/v1/models/llama-smal")

    assert "did you mean llama-small?" in answer.text
    assert "and more: GET /v1/models" in answer.text


def test_registered_name_is_its_place_unless_it_is_said_to_be_a_place(sqlite_api: Api) -> None:
    registered.register(sqlite_api.db, ADMINISTRATOR, "small", "/srv/models/tiny")

    named = submitted(sqlite_api, {"model_uri": "small"})
    directory = submitted(sqlite_api, {"model_uri": "small", "source": "local"})

    models = [job.spec["training_config"]["base_model"]["model_id"] for job in (named, directory)]
    assert models == ["/srv/models/tiny", "small"]
    registered.remove(sqlite_api.db, ADMINISTRATOR, "small")
    problem = sqlite_api.problem(sqlite_api.post("/v1/inference", make_batch(model={"model_uri": "small"})), 409)
    assert "was removed" in problem["message"]


def test_fine_tune_is_the_result_of_its_job_and_its_checkpoint_that_of_a_step(sqlite_api: Api) -> None:
    name, job_id = fine_tuned(sqlite_api)
    with sqlite_api.db.write() as session:
        saved = make_checkpoint(session, session.get_one(Job, job_id), step=300).id

    models = [
        submitted(sqlite_api, {"model_uri": uri}).spec["inference"]["model"]
        for uri in (name, checkpoint_name(name, 300), job_id)
    ]

    assert [model["job_id"] for model in models] == [job_id] * 3
    assert [model.get("checkpoint_id") for model in models] == [None, saved, None]


def test_evaluation_measures_a_named_model(sqlite_api: Api) -> None:
    name, job_id = fine_tuned(sqlite_api)
    body = {"model": {"model_uri": name}, "benchmarks": [{"name": "perplexity", "dataset": "/srv/data/test.jsonl"}]}

    made = sqlite_api.data(sqlite_api.post("/v1/evaluations", body), 201)

    assert sqlite_api.get(f"/v1/evaluations/{made['evaluation_id']}")["model"]["job_id"] == job_id


@pytest.mark.parametrize(
    ("change", "status"), [("", 409), ("x", 404), (":ckpt-step-7", 404)], ids=["unfinished", "unknown", "no-step"]
)
def test_name_without_usable_weights_is_refused(sqlite_api: Api, change: str, status: int) -> None:
    name, _ = fine_tuned(sqlite_api, state=JobState.TRAINING)
    uri = "ft:tiny:default:docs:00000000" if change == "x" else name + change

    problem = sqlite_api.problem(sqlite_api.post("/v1/inference", make_batch(model={"model_uri": uri})), status)

    assert problem["details"][0]["field"] == "model.model_uri"
