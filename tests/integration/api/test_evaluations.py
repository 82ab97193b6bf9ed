"""Evaluations over HTTP: both forms of a request, what it becomes, answers, and every bad request by field."""

from typing import Any

import pytest

from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.models import Artifact, Checkpoint, Job
from app.security.permissions import Role
from tests.builders.factories import make_document, make_job
from tests.builders.serving import make_service
from tests.systems.apps import Api

MODEL = {"model_uri": "/srv/models/tiny"}
LOSS = {"name": "loss", "dataset": "/srv/data/val.jsonl"}

TASK = {"name": "lm_eval:arc", "parameters": {"task_dir": "/srv/tasks"}}
JUDGE = {"name": "judge", "dataset": "/srv/data/q.jsonl"}


def body(**changes: Any) -> dict[str, Any]:
    document = {"model": MODEL, "benchmarks": [LOSS], "resource_config": {"device_type": "cpu"}, **changes}
    return {name: value for name, value in document.items() if value is not None}


def create(api: Api, **changes: Any) -> str:
    return str(api.data(api.post("/v1/evaluations", body(**changes)), 201)["evaluation_id"])


def test_task_of_the_harness_brings_its_own_data(api: Api) -> None:
    made = create(api, benchmarks=[TASK])

    assert stored(api, made).document.data_config.sources == ()
    (benchmark,) = api.get(f"/v1/evaluations/{made}")["benchmarks"]
    assert (benchmark["name"], benchmark["dataset"], benchmark["parameters"]) == (
        "lm_eval:arc",
        None,
        {"task_dir": "/srv/tasks"},
    )


def make_training(api: Api, *files: str, state: JobState = JobState.COMPLETED, **document: Any) -> str:
    """A training with these files as its result."""
    with api.db.write() as session:
        job = make_job(session, state=state, document=make_document(**document))
        for path in files:
            session.add(Artifact(job_id=job.id, path=path, size_bytes=1, sha256="0" * 64))
        return str(job.id)


def make_checkpoint(api: Api, job_id: str, step: int) -> str:
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.latest_checkpoint_id = new_id("ckpt")
        values = {"id": job.latest_checkpoint_id, "project": job.project, "job_id": job_id, "attempt": 1, "step": step}
        session.add(Checkpoint(**values, sha256="0" * 64, uri="file:///srv/x"))
        return str(values["id"])


def stored(api: Api, evaluation_id: str) -> Job:
    with api.db.read() as session:
        return session.get_one(Job, evaluation_id)


@pytest.mark.both_databases
def test_evaluation_of_a_place_is_a_job_with_its_datasets_as_sources(api: Api) -> None:
    answers = {"name": "exact_match", "dataset": {"path": "/srv/data/q.jsonl", "split": "test"}, "num_samples": 5}

    made = create(api, benchmarks=[LOSS, answers, {**LOSS, "name": "perplexity"}], seed=3)

    job = stored(api, made)
    assert (job.kind, job.training_type, job.framework, job.evaluated_job_id) == (
        "evaluation",
        "EVALUATION",
        "TRANSFORMERS",
        None,
    )
    document = job.document
    assert [source.path for source in document.data_config.sources] == ["/srv/data/val.jsonl", "/srv/data/q.jsonl"]
    assert document.inference is not None
    assert [(each.name, each.dataset, each.num_samples) for each in document.inference.benchmarks] == [
        ("loss", 0, None),
        ("exact_match", 1, 5),
        ("perplexity", 0, None),
    ]
    assert (document.inference.seed, job.labels["type"]) == (3, "evaluation")
    assert api.get(f"/v1/jobs/{made}")["kind"] == "evaluation"


@pytest.mark.both_databases
def test_answer_has_model_and_benchmarks_as_they_were_asked_for(api: Api) -> None:
    made = create(api, name="tiny on val", labels={"team": "a"})

    shown = api.get(f"/v1/evaluations/{made}")

    assert (shown["evaluation_id"], shown["job_id"], shown["step"]) == (made, None, None)
    assert (shown["name"], shown["status"], shown["results"]) == ("tiny on val", "PENDING", {})
    assert shown["labels"] == {"team": "a", "type": "evaluation"}
    assert shown["model"]["model_uri"] == "/srv/models/tiny"
    (benchmark,) = shown["benchmarks"]
    assert (benchmark["name"], benchmark["dataset"]["path"]) == ("loss", "/srv/data/val.jsonl")
    assert shown["data_config"] == {"seed": 42}
    assert (shown["parent_job_id"], shown["version"]) == (None, stored(api, made).version)


@pytest.mark.both_databases
def test_result_of_a_job_is_measured_as_it_was_trained(api: Api) -> None:
    trained = make_training(
        api, "config.json", "model.safetensors", data_config={"max_seq_length": 64, "batch_size": 3}
    )

    made = create(api, model={"job_id": trained})

    document, job = stored(api, made).document, stored(api, made)
    assert (job.evaluated_job_id, job.evaluated_step, job.resume_checkpoint_id) == (trained, None, None)
    assert document.data_config.max_seq_length == 64
    assert document.inference is not None
    assert document.inference.benchmarks[0].parameters == {"batch_size": 3}


@pytest.mark.both_databases
def test_form_of_scaimind_names_a_checkpoint(api: Api) -> None:
    trained = make_training(api, state=JobState.PAUSED)
    checkpoint = make_checkpoint(api, trained, 40)
    flat = {"model": None, "model_uri": "", "job_id": trained, "checkpoint_id": checkpoint}

    made = [
        create(api, **flat),
        create(api, **{**flat, "job_id": ""}),
        create(api, **{**flat, "checkpoint_id": "latest"}),
    ]

    jobs = [stored(api, each) for each in made]
    assert {(job.evaluated_job_id, job.evaluated_step, job.resume_checkpoint_id) for job in jobs} == {
        (trained, 40, checkpoint)
    }
    shown = api.get(f"/v1/evaluations/{made[0]}")
    assert (shown["job_id"], shown["checkpoint_id"], shown["step"]) == (trained, checkpoint, 40)


@pytest.mark.both_databases
def test_list_has_evaluations_alone_and_filters_by_the_models_job(api: Api) -> None:
    trained = make_training(api, "config.json", "model.safetensors")
    of_job, of_place = create(api, model={"job_id": trained}, name="b"), create(api, name="a")

    def ids(query: str) -> list[str]:
        return [each["evaluation_id"] for each in api.get(f"/v1/evaluations{query}")["evaluations"]]

    assert ids("?order_by=name") == [of_place, of_job]
    assert ids(f"?job_id={trained}") == [of_job]
    assert ids("?status=PENDING&page_size=1&order_by=-name") == [of_job]
    for filters in ("kind=evaluation", "training_type=EVALUATION", "framework=TRANSFORMERS"):
        assert {each["job_id"] for each in api.get(f"/v1/jobs?{filters}")["jobs"]} == {of_job, of_place}


def test_dry_run_writes_nothing(api: Api) -> None:
    answer = api.data(api.post("/v1/evaluations?dry_run=true", body()))

    assert (answer["valid"], answer["plan"]["training_type"]) == (True, "EVALUATION")
    assert api.get("/v1/evaluations")["total_count"] == 0


def test_sampling_without_effect_is_a_warning(api: Api) -> None:
    sampled = {**LOSS, "name": "f1", "parameters": {"top_k": 5}}

    made = api.data(api.post("/v1/evaluations", body(benchmarks=[LOSS, sampled])), 201)
    planned = api.data(api.post("/v1/evaluations?dry_run=true", body(benchmarks=[LOSS, sampled])))

    for answer in (made, planned):
        assert "benchmarks.1.parameters.top_k" in [each.partition(":")[0] for each in answer["warnings"]]


def test_repeated_request_with_a_key_makes_one(api: Api) -> None:
    headers = {"Idempotency-Key": "once"}

    first, again = (api.post("/v1/evaluations", body(), headers=headers) for _ in range(2))

    assert api.data(first, 201) == api.data(again, 201)
    assert api.get("/v1/evaluations")["total_count"] == 1


@pytest.mark.both_databases
def test_cancelled_evaluation_can_be_deleted(api: Api) -> None:
    made = create(api)
    assert api.problem(api.call("DELETE", f"/v1/evaluations/{made}"), 409)["code"] == "INVALID_STATE"

    assert api.data(api.post(f"/v1/evaluations/{made}/cancel"))["status"] == "CANCELLED"
    assert api.call("DELETE", f"/v1/evaluations/{made}").status_code == 204

    assert api.problem(api.call("GET", f"/v1/evaluations/{made}"), 404)["code"] == "NOT_FOUND"


def test_other_jobs_are_no_evaluations(api: Api) -> None:
    job_id = api.submit()

    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
        message = api.problem(api.call(method, f"/v1/evaluations/{job_id}{path}"), 404)["message"]
        assert message == f"{job_id} is of kind training, not evaluation; see GET /v1/jobs/{job_id}"


def test_another_project_finds_neither_evaluations_nor_models(api: Api) -> None:
    made, trained = create(api), make_training(api, "config.json", "model.safetensors")
    stranger = api.make_key(Role.USER, "other")

    assert api.call("GET", f"/v1/evaluations/{made}", key=stranger).status_code == 404
    assert api.post("/v1/evaluations", body(model={"job_id": trained}), key=stranger).status_code == 404
    assert api.post("/v1/evaluations/compare", {"ids": [made, made[:-1]]}, key=stranger).status_code == 404


def test_a_judge_is_a_service_of_the_project_that_writes(api: Api) -> None:
    with api.db.write() as session:
        make_service(session, name="writer")
        make_service(session, name="embedder", task="embed")
        make_service(session, name="foreign", project="other")

    def judged_by(service: str) -> dict[str, Any]:
        return body(benchmarks=[LOSS, {**JUDGE, "parameters": {"service": service}}])

    made = api.data(api.post("/v1/evaluations", judged_by("writer")), 201)["evaluation_id"]
    refused = {name: api.post("/v1/evaluations", judged_by(name)) for name in ("foreign", "embedder")}

    inference = stored(api, made).document.inference
    assert inference is not None
    assert inference.benchmarks[1].parameters == {"service": "writer"}
    problems = {name: api.problem(answer, answer.status_code) for name, answer in refused.items()}
    assert [each["details"][0]["field"] for each in problems.values()] == ["benchmarks.1.parameters.service"] * 2
    assert [answer.status_code for answer in refused.values()] == [404, 400]
    assert "has no service 'foreign'" in problems["foreign"]["message"]


@pytest.mark.parametrize(
    ("limits", "parameters", "said"),
    [
        ({"max_context": 1024}, {}, "set max_tokens to 1023 or less"),
        ({"max_output_tokens": 256}, {"max_tokens": 257}, "set max_tokens to 256 or less"),
        ({"max_context": 1024}, {"max_tokens": 512}, None),
        ({}, {}, None),
    ],
)
def test_a_judge_whose_service_has_no_room_for_verdicts_is_refused(
    sqlite_api: Api, limits: dict[str, int], parameters: dict[str, int], said: str | None
) -> None:
    with sqlite_api.db.write() as session:
        make_service(session, name="writer", spec={"name": "writer", "limits": limits})
    judge = {**JUDGE, "parameters": {"service": "writer", **parameters}}

    answer = sqlite_api.post("/v1/evaluations", body(benchmarks=[LOSS, judge]))

    if said is None:
        assert answer.status_code == 201
        return
    problem = sqlite_api.problem(answer, 400)
    assert problem["details"][0]["field"] == "benchmarks.1.parameters.max_tokens"
    assert said in problem["message"]


def test_viewers_look_and_users_measure(api: Api) -> None:
    viewer, user = api.make_key(Role.VIEWER), api.make_key(Role.USER)

    assert api.post("/v1/evaluations", body(), key=viewer).status_code == 403
    assert api.post("/v1/evaluations", body(), key=user).status_code == 201
    assert api.call("GET", "/v1/evaluations", key=viewer).status_code == 200
    assert api.post("/v1/evaluations/compare", {"ids": ["job-1", "job-2"]}, key=viewer).status_code == 404


@pytest.mark.parametrize(
    ("state", "checkpoint", "field"),
    [(JobState.TRAINING, None, "model.job_id"), (JobState.TRAINING, "latest", "model.checkpoint")],
)
def test_job_without_result_or_checkpoint_is_a_conflict(
    api: Api, state: JobState, checkpoint: str | None, field: str
) -> None:
    trained = make_training(api, state=state)
    named = {"job_id": trained} | ({"checkpoint": checkpoint} if checkpoint else {})

    problem = api.problem(api.post("/v1/evaluations", body(model=named)), 409)

    assert (problem["code"], trained in problem["message"]) == ("CONFLICT", True)


def test_reward_model_answers_nothing(api: Api) -> None:
    rewards = {"training_type": "RLHF", "hyperparameters": {"algorithm": "reward"}}
    trained = make_training(api, "config.json", "model.safetensors", training_config=rewards)

    problem = api.problem(api.post("/v1/evaluations", body(model={"job_id": trained})), 400)

    assert (problem["details"][0]["field"], "preference" in problem["message"]) == ("benchmarks.0.name", True)


@pytest.mark.parametrize(
    ("changes", "status", "field", "said"),
    [
        ({"benchmarks": [{**LOSS, "name": "glue"}]}, 400, "benchmarks.0.name", "exact_match"),
        ({"benchmarks": [LOSS, {"name": "f1"}]}, 422, "benchmarks.1.dataset", "required"),
        ({"benchmarks": [LOSS, LOSS]}, 400, "benchmarks.1.name", "both loss"),
        ({"benchmarks": [{**LOSS, "parameters": {"stop": 1}}]}, 400, "benchmarks.0.parameters.stop", "no parameter"),
        ({"benchmarks": [{**LOSS, "num_samples": 0}]}, 422, "benchmarks.0.num_samples", "from 1 to"),
        ({"benchmarks": []}, 422, "benchmarks", "1 to 32 entries"),
        ({"benchmarks": [{**LOSS, "dataset": "/etc/passwd"}]}, 400, "benchmarks.0.dataset.path", "lies outside"),
        ({"benchmarks": [{**LOSS, "dataset": {"split": "test"}}]}, 422, "benchmarks.0.dataset.path", "required"),
        ({"benchmarks": [{**LOSS, "dataset": " "}]}, 422, "benchmarks.0.dataset", "must not be empty"),
        ({"benchmarks": [{**LOSS, "dataset": {"path": "\t"}}]}, 422, "benchmarks.0.dataset.path", "must not be empty"),
        ({"benchmarks": [{**LOSS, "dataset": 5}]}, 422, "benchmarks.0.dataset", "a path"),
        (
            {"benchmarks": [LOSS, {**LOSS, "name": "f1", "dataset": {"path": "/srv/q.jsonl", "split": "some"}}]},
            400,
            "benchmarks.1.dataset.split",
            "validation or test",
        ),
        ({"benchmarks": [{**LOSS, "name": "custom:/etc/x.py"}]}, 400, "benchmarks.0.name", "lies outside"),
        ({"benchmarks": [{**TASK, "dataset": "/srv/q"}]}, 400, "benchmarks.0.dataset", "leave dataset out"),
        ({"benchmarks": [{"name": "lm_eval:arc"}]}, 400, "benchmarks.0.parameters.task_dir", "data_files"),
        (
            {"benchmarks": [{**TASK, "parameters": {"task_dir": "/etc"}}]},
            400,
            "benchmarks.0.parameters.task_dir",
            "lies outside",
        ),
        (
            {"benchmarks": [{**LOSS, "name": "reward", "parameters": {"reward_model_id": "/etc/judge"}}]},
            400,
            "benchmarks.0.parameters.reward_model_id",
            "lies outside",
        ),
        (
            {"benchmarks": [{**LOSS, "name": "reward", "parameters": {"reward": "exact", "reward_model_id": "o/j"}}]},
            400,
            "benchmarks.0.parameters.reward",
            "leave one of them out",
        ),
        (
            {"benchmarks": [{**LOSS, "name": "reward", "parameters": {"reward_model_id": " "}}]},
            400,
            "benchmarks.0.parameters.reward_model_id",
            "name a model",
        ),
        ({"benchmarks": [{**LOSS, "name": "custom"}]}, 400, "benchmarks.0.name", "custom:/path/metric.py"),
        (
            {"benchmarks": [{**LOSS, "name": "regex", "parameters": {"pattern": "(?=a)"}}]},
            400,
            "benchmarks.0.parameters.pattern",
            "RE2",
        ),
        ({"benchmarks": [JUDGE]}, 400, "benchmarks.0.parameters.service", "name a service of the project"),
        (
            {"benchmarks": [{**JUDGE, "parameters": {"model": "j", "pattern": "(?=a)", "template": "{{answer}}"}}]},
            400,
            "benchmarks.0.parameters.pattern",
            "RE2",
        ),
        (
            {"benchmarks": [{**JUDGE, "parameters": {"model": "j", "pattern": "[0-9]", "template": "{{answer}}"}}]},
            400,
            "benchmarks.0.parameters.pattern",
            "no group",
        ),
        ({"model": None}, 400, "model", "required"),
        ({"job_id": "job-1"}, 400, "model", "leave job_id out"),
        ({"model": {"model_uri": "/etc"}}, 400, "model.model_uri", "lies outside"),
        ({"model": {"job_id": "job-1", **MODEL}}, 400, "model.model_uri", "job_id out"),
        ({"resource_config": {"device_type": "cpu", "node_count": 2}}, 400, "resource_config.node_count", "one node"),
        ({"surprise": 1}, 422, "surprise", "nknown"),
    ],
)
def test_bad_requests_name_field_and_way_out(
    sqlite_api: Api, changes: dict[str, Any], status: int, field: str, said: str
) -> None:
    problem = sqlite_api.problem(sqlite_api.post("/v1/evaluations", body(**changes)), status)

    fields = [each["field"] for each in problem.get("details", [])]
    assert (fields[:1] == [field] or not field, said in str(problem)) == (True, True), problem
    assert sqlite_api.get("/v1/evaluations")["total_count"] == 0
