"""Trainings whose base model is the result of another job."""

from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.security.permissions import Role
from app.services.access.api_keys import ADMINISTRATOR
from app.services.model_registry import fine_tunes
from app.services.model_registry.resolving import resolve_for_training
from tests.builders.controlled import job_of
from tests.builders.factories import make_document
from tests.builders.inference_requests import make_batch, make_trained
from tests.systems.apps import Api

LORA: dict[str, Any] = {"training_type": "LORA", "hyperparameters": {"lora_r": "4"}}


def trained(api: Api, **how: Any) -> str:
    with api.db.write() as session:
        return make_trained(session, **how).id


def continued(job_id: str, *, model_id: str = "none", base: Any = None, **training: Any) -> dict[str, Any]:
    document = make_document(training_config=training)
    document["training_config"]["base_model"] = {"model_id": model_id, "job_id": job_id, **(base or {})}
    return document


def submitted(api: Api, document: dict[str, Any]) -> Job:
    return job_of(api, api.data(api.post("/v1/jobs", document), 201)["job_id"])


def base_of(job: Job) -> dict[str, Any]:
    return dict(job.spec["training_config"]["base_model"])


def refused(api: Api, document: dict[str, Any], status: int, **request: Any) -> tuple[str, str]:
    problem = api.problem(api.post("/v1/jobs", document, **request), status)
    return problem["details"][0]["field"].removeprefix("training_config."), problem["message"]


def test_whole_model_is_the_base_model_and_its_job_is_kept(sqlite_api: Api) -> None:
    source = trained(sqlite_api, base_model={"model_id": "/srv/models/tiny", "dtype": "bfloat16"})

    job = submitted(sqlite_api, continued(source))

    assert base_of(job) == {"model_id": "none", "job_id": source, "dtype": "bfloat16"}
    deleted = sqlite_api.problem(sqlite_api.call("DELETE", f"/v1/jobs/{source}?artifacts=true"), 409)
    assert job.id in deleted["message"]


def judged(judge: str) -> dict[str, Any]:
    values = {"algorithm": "grpo", "reward_model_id": judge}
    return make_document(training_config={"training_type": "RLHF", "hyperparameters": values})


def test_job_that_trained_a_reward_model_is_the_reward_model(sqlite_api: Api) -> None:
    scores = {"training_type": "RLHF", "hyperparameters": {"algorithm": "reward"}}
    judge = trained(sqlite_api, **scores)

    job = submitted(sqlite_api, judged(judge))

    assert job.spec["training_config"]["hyperparameters"]["reward_model_id"] == judge
    deleted = sqlite_api.problem(sqlite_api.call("DELETE", f"/v1/jobs/{judge}?artifacts=true"), 409)
    assert job.id in deleted["message"]
    at = "hyperparameters.reward_model_id"
    other = trained(sqlite_api, project="red", **scores)
    for bad, status in (
        (trained(sqlite_api), 400),
        (trained(sqlite_api, state=JobState.TRAINING, **scores), 409),
        (trained(sqlite_api, adapter=True, **scores), 409),
        (f"{judge[:-1]}{'0' if judge[-1] != '0' else '1'}", 404),
    ):
        assert refused(sqlite_api, judged(bad), status)[0] == at
    assert refused(sqlite_api, judged(other), 404, key=sqlite_api.make_key(Role.USER))[0] == at


def test_benchmark_takes_the_job_that_trained_a_reward_model(sqlite_api: Api) -> None:
    text = trained(sqlite_api)
    reward = {"name": "reward", "dataset": "/srv/q.jsonl", "parameters": {"reward_model_id": text}}

    problem = sqlite_api.problem(
        sqlite_api.post("/v1/evaluations", {"model": {"job_id": text}, "benchmarks": [reward]}), 400
    )

    assert problem["details"][0]["field"] == "benchmarks.0.parameters.reward_model_id"


def test_adapter_is_continued_with_its_base_model_and_form(sqlite_api: Api) -> None:
    source = trained(sqlite_api, adapter=True, **LORA)

    job = submitted(sqlite_api, continued(source, **LORA))

    assert base_of(job) == {"model_id": "/srv/models/tiny", "job_id": source}
    stored = sqlite_api.get(f"/v1/jobs/{job.id}")
    sections = ("name", "training_config", "data_config", "resource_config")
    assert base_of(submitted(sqlite_api, {name: stored[name] for name in sections})) == base_of(job)
    field, message = refused(sqlite_api, continued(source, training_type="LORA"), 400)
    assert (field, "say the same" in message) == ("hyperparameters.lora_r", True)
    assert refused(sqlite_api, continued(source, training_type="SFT"), 400)[0] == "base_model.job_id"


def test_adapter_for_a_result_is_used_on_that_result(sqlite_api: Api) -> None:
    whole = trained(sqlite_api)
    adapter = trained(sqlite_api, adapter=True, **LORA, base_model={"model_id": "none", "job_id": whole})

    batch = sqlite_api.data(sqlite_api.post("/v1/inference", make_batch(model={"job_id": adapter})), 201)

    assert base_of(job_of(sqlite_api, batch["job_id"])) == {"model_id": "none", "job_id": whole}
    assert refused(sqlite_api, continued(adapter, **LORA), 409)[0] == "base_model.job_id"


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"model_id": "/srv/models/other"}, "base_model.model_id"),
        ({"base": {"tokenizer_id": "/srv/models/other"}}, "base_model.tokenizer_id"),
        ({"base": {"from_config": True}}, "base_model.from_config"),
        ({"base": {"credentials": {"token": "t"}}}, "base_model.credentials"),
        (
            {"framework": {"type": "CUSTOM", "custom_script_path": "/srv/train.py"}, "hyperparameters": {}},
            "base_model.job_id",
        ),
    ],
    ids=["place", "tokenizer", "drawn", "credentials", "script"],
)
def test_what_contradicts_the_result_is_refused(sqlite_api: Api, document: dict[str, Any], field: str) -> None:
    assert refused(sqlite_api, continued(trained(sqlite_api), **document), 400)[0] == field


def test_result_that_there_is_not_is_refused(sqlite_api: Api) -> None:
    unfinished, foreign = trained(sqlite_api, state=JobState.TRAINING), trained(sqlite_api, project="other")
    judge = trained(sqlite_api, training_type="RLHF", hyperparameters={"algorithm": "reward"})
    key = sqlite_api.make_key(Role.USER)

    assert "wait until it is COMPLETED" in refused(sqlite_api, continued(unfinished), 409)[1]
    assert refused(sqlite_api, continued(foreign), 404, key=key)[1] == f"no job {foreign}"
    assert refused(sqlite_api, continued(foreign), 404)[0] == "base_model.job_id"
    assert "reward model" in refused(sqlite_api, continued(judge), 400)[1]


def test_fine_tune_is_trained_further_by_its_name(sqlite_api: Api) -> None:
    source = trained(sqlite_api, adapter=True, **LORA)
    with sqlite_api.db.write() as session:
        job = session.get_one(Job, source)
        job.created_by = "key-1"
        name = fine_tunes.planned(session, job, "tiny", None).name

    with sqlite_api.db.read() as session:
        choice = resolve_for_training(session, ADMINISTRATOR, "default", name)

    assert (dict(choice.base_model), choice.name) == ({"model_id": "none", "job_id": source}, name)
    assert (choice.adapter, dict(choice.hyperparameters)) == (True, {"lora_r": "4"})
