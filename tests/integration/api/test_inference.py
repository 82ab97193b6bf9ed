"""Submitting, reading, listing and retrying batches and features, and where their model comes from."""

from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.spec.frameworks import requirements
from app.models import Artifact, Job, Shard
from app.security.permissions import Role
from app.services.attempts import model_weights
from app.services.attempts.checkpoints import ResumeCandidate
from tests.builders.controlled import job_of
from tests.builders.factories import make_checkpoint, make_document, make_job, make_node
from tests.builders.inference_requests import make_batch, make_features, make_trained
from tests.builders.shards import batch_document
from tests.systems.apps import Api

LORA = {"training_type": "LORA", "hyperparameters": {"lora_r": "4"}}


def submit(api: Api, body: dict[str, Any], **request: Any) -> str:
    return str(api.data(api.post("/v1/inference", body, **request), 201)["job_id"])


def trained(api: Api, **how: Any) -> str:
    with api.db.write() as session:
        return make_trained(session, **how).id


def checkpoint_of(api: Api, job_id: str, **columns: Any) -> str:
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        saved = make_checkpoint(session, job, **columns)
        job.latest_checkpoint_id = saved.id
        job.best_checkpoint_id = saved.id if saved.is_best else job.best_checkpoint_id
        return saved.id


def base_model(api: Api, job_id: str) -> dict[str, Any]:
    return dict(job_of(api, job_id).spec["training_config"]["base_model"])


def test_job_of_requests_is_shown_as_it_was_submitted(api: Api) -> None:
    task = {"type": "requests", "endpoint": "/v1/chat/completions", "only_model": "tiny", "seed": 3, "created": 17}

    job_id = submit(api, make_batch(task=task, output={"shard_records": 64}))

    shown = api.get(f"/v1/inference/{job_id}")
    assert (shown["kind"], shown["task"]) == ("batch", task)
    assert shown["output"] == {"format": "jsonl", "keep_columns": [], "shard_records": 64}


def test_batch_is_shown_in_the_words_of_its_submission_with_all_defaults(api: Api) -> None:
    job_id = submit(
        api,
        make_batch(
            labels={"team": "a"},
            task={"type": "generate", "max_new_tokens": 8, "stop": ["\n\n"]},
            output={"path": "/srv/out/labels", "keep_columns": ["id"]},
            on_error={"max_share": 0.5},
        ),
    )

    shown = api.get(f"/v1/inference/{job_id}")

    assert shown["kind"] == "batch"
    assert shown["labels"] == {"type": "batch", "team": "a"}
    assert shown["model"] == {"model_uri": "/srv/models/tiny", "quantization": "none"}
    assert shown["data_config"]["sources"] == [{"path": "/srv/data/prompts.jsonl", "format": "jsonl", "split": "train"}]
    assert {"max_new_tokens": 8, "stop": ["\n\n"], "temperature": 0.0, "n": 1}.items() <= shown["task"].items()
    assert shown["output"] == {
        "path": "/srv/out/labels",
        "format": "jsonl",
        "keep_columns": ["id"],
        "shard_records": 512,
    }
    assert shown["on_error"] == {"action": "record", "max_share": 0.5}


def test_features_are_vectors_in_parquet_by_default(api: Api) -> None:
    shown = api.get(f"/v1/inference/{submit(api, make_features())}")

    assert (shown["kind"], shown["task"]["type"], shown["output"]["format"]) == ("features", "embed", "parquet")


def test_job_is_one_of_its_kind_among_all_jobs(api: Api) -> None:
    training, batch, features = api.submit(), submit(api, make_batch()), submit(api, make_features())

    job = api.get(f"/v1/jobs/{batch}")

    assert (job["kind"], job["training_config"]["training_type"]) == ("batch", "BATCH")
    assert [each["job_id"] for each in api.get("/v1/jobs?kind=batch")["jobs"]] == [batch]
    assert [each["job_id"] for each in api.get("/v1/jobs?kind=training")["jobs"]] == [training]
    assert [each["job_id"] for each in api.get("/v1/inference?order_by=created_at")["inference"]] == [batch, features]
    assert [each["job_id"] for each in api.get("/v1/inference?kind=features")["inference"]] == [features]


def test_list_is_filtered_by_label_and_name(api: Api) -> None:
    submit(api, make_batch(name="other"))
    found = submit(api, make_batch(labels={"team": "a"}))

    assert [each["job_id"] for each in api.get("/v1/inference?labels.team=a")["inference"]] == [found]
    assert api.get("/v1/inference?name=lab&status=PENDING")["total_count"] == 1


def test_counts_are_those_of_the_stored_shards(api: Api) -> None:
    job_id = submit(api, make_batch(output={"shard_records": 10}))
    with api.db.write() as session:
        session.get_one(Job, job_id).total_steps = 25
        for number, failed in enumerate((1, 2)):
            counts = {"failed": failed, "prompt_tokens": 5, "completion_tokens": 3}
            place = {"first_record": 10 * number, "records": 10, "attempt": 1, "fence": 1, "size_bytes": 1}
            session.add(Shard(job_id=job_id, number=number, **place, sha256="0" * 64, uri="file:///x", counts=counts))

    shown = api.get(f"/v1/inference/{job_id}")

    assert (shown["records"], shown["total_records"], shown["failed_records"]) == (20, 25, 3)
    assert (shown["shards"], shown["total_shards"], shown["prompt_tokens"]) == (2, 3, 10)


def test_training_is_no_inference_job(api: Api) -> None:
    job_id = api.submit()

    assert f"/v1/jobs/{job_id}" in api.problem(api.call("GET", f"/v1/inference/{job_id}"), 404)["message"]


def test_whole_result_needs_no_base_model(api: Api) -> None:
    source = trained(api, base_model={"model_id": "/srv/models/tiny", "dtype": "bfloat16"})

    job_id = submit(api, make_batch(model={"job_id": source}))

    assert base_model(api, job_id) == {"model_id": "none", "dtype": "bfloat16"}
    assert api.get(f"/v1/inference/{job_id}")["model"] == {
        "job_id": source,
        "dtype": "bfloat16",
        "quantization": "none",
    }


def test_adapter_has_the_base_model_of_its_job(api: Api) -> None:
    source = trained(api, adapter=True, **LORA)

    job_id = submit(api, make_batch(model={"job_id": source, "dtype": "bfloat16"}))

    assert base_model(api, job_id) == {"model_id": "/srv/models/tiny", "dtype": "bfloat16"}
    assert api.get(f"/v1/inference/{job_id}")["adapter"] is True


def test_merged_result_of_an_adapter_training_is_a_whole_model(api: Api) -> None:
    job_id = submit(api, make_batch(model={"job_id": trained(api, **LORA)}))

    assert base_model(api, job_id)["model_id"] == "none"


def test_named_checkpoint_is_stored_by_its_id_and_pinned(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING, **LORA)
    best = checkpoint_of(api, source, step=5, is_best=True)
    checkpoint_of(api, source, step=9)

    job_id = submit(api, make_batch(model={"job_id": source, "checkpoint": "best"}))

    shown = api.get(f"/v1/inference/{job_id}")
    assert (shown["model"]["checkpoint"], shown["adapter"]) == (best, True)
    assert job_of(api, job_id).resume_checkpoint_id == best


def test_checkpoint_by_id_needs_no_job(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING)
    saved = checkpoint_of(api, source)

    job_id = submit(api, make_batch(model={"checkpoint": saved}))

    assert api.get(f"/v1/inference/{job_id}")["model"]["job_id"] == source


def refused_model(api: Api, model: dict[str, Any], status: int, **request: Any) -> dict[str, Any]:
    problem = api.problem(api.post("/v1/inference", make_batch(model=model), **request), status)
    assert api.get("/v1/inference")["total_count"] == 0
    return problem


def field_of(problem: dict[str, Any]) -> str:
    (detail,) = problem["details"]
    return str(detail["field"])


def test_job_of_another_project_does_not_exist(api: Api) -> None:
    source, key = trained(api, project="other"), api.make_key(Role.USER)
    saved = checkpoint_of(api, source)

    unknown = refused_model(api, {"job_id": "job-unknown"}, 404, key=key)
    foreign = refused_model(api, {"job_id": source}, 404, key=key)

    assert foreign["message"].replace(source, "job-unknown") == unknown["message"]
    assert (field_of(foreign), field_of(unknown)) == ("model.job_id", "model.job_id")
    refused_model(api, {"checkpoint": saved}, 404, key=key)
    refused_model(api, {"job_id": source}, 404)


def test_damaged_checkpoint_is_a_conflict_where_it_is_named_and_passed_over_elsewhere(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING, **LORA)
    older, damaged = checkpoint_of(api, source, step=5), checkpoint_of(api, source, step=9)
    stored = ResumeCandidate(checkpoint_id=damaged, job_id=source, uri="", sha256="", step=9, world_size=1)
    model_weights.retire_damaged(api.db, stored, "w: content differs", actor="n1", found_by="job-1")

    for model in ({"job_id": source, "checkpoint": damaged}, {"checkpoint": damaged}):
        said = refused_model(api, model, 409)["message"]
        assert "content differs" in said
        assert "say latest" in said
    with api.db.write() as session:
        document = batch_document(inference={"model": {"job_id": source, "checkpoint_id": damaged}})
        parent = make_job(session, state=JobState.FAILED, document=document).id
    retry = api.problem(api.post(f"/v1/jobs/{parent}/retry"), 400)
    assert "content differs" in retry["message"]
    assert "submit again with another model.checkpoint" in retry["message"]
    job_id = submit(api, make_batch(model={"job_id": source, "checkpoint": "latest"}))
    assert api.get(f"/v1/inference/{job_id}")["model"]["checkpoint"] == older
    named = submit(api, make_batch(model={"job_id": source, "checkpoint": older}))
    models = [job_of(api, each).spec["inference"]["model"] for each in (job_id, named)]
    assert [each.get("chosen_as", "") for each in models] == ["latest", ""], (
        "where it proves damaged, too, the first may take another"
    )


def test_refusal_of_the_only_checkpoint_names_no_other(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING, **LORA)
    damaged = checkpoint_of(api, source)
    stored = ResumeCandidate(checkpoint_id=damaged, job_id=source, uri="", sha256="", step=9, world_size=1)
    model_weights.retire_damaged(api.db, stored, "w: content differs", actor="n1", found_by="job-1")

    said = refused_model(api, {"job_id": source, "checkpoint": damaged}, 409)["message"]

    assert "has no other; wait until it has saved one" in said
    assert "latest" not in said


def test_unfinished_job_has_only_checkpoints(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING)

    assert "model.checkpoint" in refused_model(api, {"job_id": source}, 409)["message"]
    assert "no checkpoint" in refused_model(api, {"job_id": source, "checkpoint": "latest"}, 409)["message"]
    refused_model(api, {"job_id": source, "checkpoint": "ckpt-unknown"}, 404)


def test_job_without_an_evaluated_checkpoint_has_no_best_one(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING)
    checkpoint_of(api, source)

    assert "latest" in refused_model(api, {"job_id": source, "checkpoint": "best"}, 409)["message"]


@pytest.mark.parametrize(
    ("framework", "needed"), [("HF_TRAINER", False), ("FSDP", False), ("MEGATRON", False), ("DEEPSPEED", True)]
)
def test_checkpoint_of_many_ranks_says_who_has_divided_it(api: Api, framework: str, *, needed: bool) -> None:
    source = trained(api, state=JobState.TRAINING, framework={"type": framework})
    checkpoint_of(api, source)

    document = job_of(api, submit(api, make_batch(model={"job_id": source, "checkpoint": "latest"}))).document

    assert document.inference is not None
    assert document.inference.model.divided == ("" if framework == "HF_TRAINER" else framework)
    assert ("deepspeed" in requirements.needed(document)) == needed


def test_checkpoint_that_is_no_model_is_refused(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING, framework={"type": "CUSTOM"})
    checkpoint_of(api, source)

    assert "use its result" in refused_model(api, {"job_id": source, "checkpoint": "latest"}, 409)["message"]


def test_result_in_a_form_that_is_not_loaded_is_refused(api: Api) -> None:
    with api.db.write() as session:
        source = make_trained(session, state=JobState.COMPLETED).id
        for path in ("model.safetensors", "config.json"):
            session.delete(session.get_one(Artifact, (source, path)))

    assert "safetensors" in refused_model(api, {"job_id": source}, 409)["message"]


def test_credentials_of_an_adapters_base_model_must_be_repeated(api: Api) -> None:
    masked = {"model_id": "s3://models/base", "credentials": {"token": "***"}}
    source = trained(api, adapter=True, base_model=masked, **LORA)

    problem = refused_model(api, {"job_id": source}, 409)

    assert field_of(problem) == "model.credentials"
    assert "merge_lora" in problem["message"]


def test_reward_model_writes_no_text_and_other_models_give_no_score(api: Api) -> None:
    judge = trained(api, training_type="RLHF", hyperparameters={"algorithm": "reward"})
    writer = trained(api)

    assert field_of(refused_model(api, {"job_id": judge}, 400)) == "task.type"
    scored = make_batch(model={"job_id": writer}, task={"type": "score"})
    assert field_of(api.problem(api.post("/v1/inference", scored), 400)) == "task.type"
    submit(api, make_batch(model={"job_id": judge}, task={"type": "score"}))


def test_job_that_trained_nothing_made_no_model(api: Api) -> None:
    batch = submit(api, make_batch())

    problem = api.problem(api.post("/v1/inference", make_batch(model={"job_id": batch})), 400)

    assert field_of(problem) == "model.job_id"


def test_dry_run_says_where_it_would_run_and_stores_nothing(api: Api) -> None:
    with api.db.write() as session:
        make_node(session)

    found = api.data(api.post("/v1/inference?dry_run=true", make_batch(task={"top_p": 0.5})))

    assert found["valid"] is True
    assert found["plan"]["training_type"] == "BATCH"
    assert "task.top_p: no effect at temperature 0, which takes the likeliest token" in found["warnings"]
    assert api.get("/v1/inference")["total_count"] == 0


def test_repeated_request_makes_one_job(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}

    assert submit(api, make_batch(), headers=headers) == submit(api, make_batch(), headers=headers)


def test_viewer_submits_nothing(api: Api) -> None:
    api.problem(api.post("/v1/inference", make_batch(), key=api.make_key(Role.VIEWER)), 403)


def test_secrets_are_masked_and_carried_over_to_a_retry(api: Api) -> None:
    body = make_batch(
        model={"model_uri": "hf://owner/model", "credentials": {"token": "hf_secret"}},
        environment={"HF_TOKEN": "hf_other"},
        resource_config={"device_type": "cpu", "gpu_count": 2},
    )
    parent = submit(api, body)
    with api.db.write() as session:
        session.get_one(Job, parent).status = JobState.FAILED

    child = api.data(
        api.post(f"/v1/jobs/{parent}/retry", {"modify_resources": True, "new_resource_config": {"gpu_count": 1}}), 201
    )

    shown = api.get(f"/v1/inference/{child['job_id']}")
    assert shown["model"]["credentials"] == {"token": "***"}
    assert shown["parent_job_id"] == parent
    assert shown["resource_config"]["gpu_count"] == 1
    assert job_of(api, child["job_id"]).sealed_secrets != ""
    assert child["kind"] == "batch"


def test_retry_uses_the_same_checkpoint(api: Api) -> None:
    source = trained(api, state=JobState.TRAINING)
    saved = checkpoint_of(api, source)
    parent = submit(api, make_batch(model={"job_id": source, "checkpoint": "latest"}))
    with api.db.write() as session:
        session.get_one(Job, parent).status = JobState.FAILED

    child = api.data(api.post(f"/v1/jobs/{parent}/retry"), 201)["job_id"]

    assert job_of(api, child).resume_checkpoint_id == saved
    assert api.get(f"/v1/inference/{child}")["model"]["checkpoint"] == saved


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": "batch"}, "kind"),
        ({"inference": {}}, "inference"),
        ({"training_config": {"training_type": "BATCH"}}, "training_config.training_type"),
    ],
)
def test_training_jobs_are_the_only_ones_of_the_jobs_route(api: Api, changes: dict[str, Any], field: str) -> None:
    problem = api.problem(api.post("/v1/jobs", make_document(**changes)), 422)

    assert [each["field"] for each in problem["details"]] == [field]
    assert "POST /v1/inference" in problem["details"][0]["message"]


def test_jobs_of_another_project_are_neither_listed_nor_found(api: Api) -> None:
    job_id, key = submit(api, make_batch()), api.make_key(Role.USER, "other")

    assert api.get("/v1/inference", key=key)["inference"] == []
    api.problem(api.call("GET", f"/v1/inference/{job_id}", key=key), 404)


def test_form_of_answers_needs_a_node_that_holds_them_to_it(api: Api) -> None:
    body = make_batch(task={"response_format": {"type": "regex", "pattern": "yes|no"}})
    with api.db.write() as session:
        make_node(session, "plain")

    problem = api.problem(api.post("/v1/inference", body), 400)

    assert "trainyard[inference]" in problem["message"]
    with api.db.write() as session:
        make_node(session, "structured", capabilities=["inference"])
    submit(api, body)
