"""Which trainings may plan evaluations, and what the plans may read."""

import copy
from typing import Any

import pytest

from app.domain.errors import BadSpec, InvalidRequest
from app.domain.evaluations import planned
from app.domain.evaluations.planned_rules import planned_documents
from app.domain.evaluations.rules import refuse_bad_benchmarks, without_effect
from app.domain.spec.document import benchmark_files, locations
from app.domain.spec.model import JobDocument
from tests.builders.submitted import RULES, changed, custom, refusal, spec_of

PLANS = "training_config.evaluations"
VALIDATED = ("data_config.validation_split", 0.1)
MATCH = {"name": "exact_match", "dataset": {"path": "/srv/q.jsonl"}}


def plan(*benchmarks: dict[str, Any], on: str = "end") -> tuple[str, Any]:
    return PLANS, [{"on": on, "benchmarks": copy.deepcopy(list(benchmarks or [MATCH]))}]


def task(directory: str) -> dict[str, Any]:
    return {"name": "lm_eval:arc", "parameters": {"task_dir": directory}}


def trained_by(framework: str) -> tuple[str, Any]:
    return "training_config.framework.type", framework


@pytest.mark.parametrize("on", ["end", "checkpoint", "best"])
def test_plan_is_stored_as_it_was_given(on: str) -> None:
    document = changed(plan(on=on), VALIDATED)

    assert (
        spec_of(document).document.to_json()["training_config"]["evaluations"]
        == document["training_config"]["evaluations"]
    )


@pytest.mark.parametrize(("framework", "divided"), [("HF_TRAINER", ""), ("FSDP", "FSDP")])
def test_plan_for_checkpoints_says_who_has_divided_them(framework: str, divided: str) -> None:
    document = changed(plan(on="checkpoint"), trained_by(framework), VALIDATED)
    spec_of(document)  # raises what a submission would

    trained = JobDocument.from_json(document)
    models = [planned.subject(trained, job_id="job-1", checkpoint_id=each).model for each in ("ckpt-1", None)]

    assert [each.divided for each in models] == [divided, ""]


def test_sampling_of_a_plan_without_effect_is_named() -> None:
    document = JobDocument.from_json(changed(plan(MATCH, {**MATCH, "name": "f1", "parameters": {"top_p": 0.5}})))

    (warning,) = without_effect(document)

    assert warning.startswith(f"{PLANS}.0.benchmarks.1.parameters.top_p: no effect at temperature 0")


def test_place_of_a_dataset_is_among_what_the_job_reads() -> None:
    scored = {"name": "custom:/srv/brevity.py", "dataset": {"path": "/srv/q.jsonl"}}
    document = JobDocument.from_json(changed(plan(MATCH, scored)))

    assert (f"{PLANS}.0.benchmarks.0.dataset.path") in [field for _, field in locations(document)]
    assert list(benchmark_files(document)) == [("/srv/brevity.py", f"{PLANS}.0.benchmarks.1.name")]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ([plan(on="best")], f"{PLANS}.0.on", "validation_split"),
        ([plan(), ("output_config.export_format", "gguf")], f"{PLANS}.0.on", "no engine loads"),
        ([plan({"name": "f1", "dataset": {"path": " "}})], f"{PLANS}.0.benchmarks.0.dataset.path", "empty"),
        ([plan({"name": "f1", "dataset": {"path": "/etc/q"}})], f"{PLANS}.0.benchmarks.0.dataset.path", "outside"),
        (
            [plan({"name": "reward", "parameters": {"reward_model_id": "scaidrive://team/judge"}})],
            f"{PLANS}.0.benchmarks.0.parameters.reward_model_id",
            "secret",
        ),
        ([plan({"name": "custom:/etc/x.py"})], f"{PLANS}.0.benchmarks.0.name", "outside"),
        ([plan(task("/etc"))], f"{PLANS}.0.benchmarks.0.parameters.task_dir", "outside"),
        ([plan(task("scaidrive://d/tasks"))], f"{PLANS}.0.benchmarks.0.parameters.task_dir", "secret"),
        ([plan({"name": "f1", "dataset": {"path": "scaidrive://d/q"}})], f"{PLANS}.0.benchmarks.0.dataset", "secret"),
        (
            [plan({"name": "f1", "dataset": {"path": "s3://b/q", "credentials": {"token": "x"}}})],
            f"{PLANS}.0.benchmarks.0.dataset",
            "POST /v1/evaluations",
        ),
        (
            [plan({"name": "f1", "dataset": {"path": "https://h/q.jsonl?sig=abc"}})],
            f"{PLANS}.0.benchmarks.0.dataset",
            "secret",
        ),
    ],
)
def test_plans_that_cannot_be_measured_are_refused(changes: list[tuple[str, Any]], field: str, said: str) -> None:
    refused = refusal(changed(*changes))

    assert (refused.field, said in refused.message) == (field, True)


def test_training_metric_tells_which_checkpoint_is_the_best() -> None:
    metric = ("output_config.checkpoint.metric_for_best_model", "loss")

    assert spec_of(changed(plan(on="best"), metric)).document.training_config.evaluations[0].on == "best"


@pytest.mark.parametrize(
    ("events", "is_refused"),
    [(("end", "end"), True), (("checkpoint", "best"), True), (("best", "best"), True), (("end", "checkpoint"), False)],
)
def test_benchmark_is_measured_once_for_each_event(events: tuple[str, str], *, is_refused: bool) -> None:
    plans = [{"on": on, "benchmarks": [{"name": "json_valid", "dataset": {"path": "/srv/q"}}, MATCH]} for on in events]
    plans[0]["benchmarks"] = [MATCH]
    document = JobDocument.from_json(changed((PLANS, plans)))

    if not is_refused:
        refuse_bad_benchmarks(document)
        return
    with pytest.raises(BadSpec, match="exact_match") as caught:
        refuse_bad_benchmarks(document)
    assert caught.value.field == f"{PLANS}.1.benchmarks.1.name"


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        (
            [(f"{PLANS}.0.resource_config", {"gpu_type": "H100", "device_type": "cpu"})],
            f"{PLANS}.0.resource_config.gpu_type",
            "device_type is cpu",
        ),
        (
            [(f"{PLANS}.0.resource_config", {"gpu_type": "H100"}), ("resource_config.device_type", "cpu")],
            f"{PLANS}.0.resource_config.gpu_type",
            "device_type is cpu",
        ),
        ([(f"{PLANS}.0.benchmarks.0.dataset.split", "train[a:b]")], f"{PLANS}.0.benchmarks.0.dataset.split", "split"),
    ],
)
def test_evaluations_have_to_pass_their_own_rules(changes: list[tuple[str, Any]], field: str, said: str) -> None:
    document = JobDocument.from_json(changed(plan(MATCH), *changes))

    with pytest.raises(InvalidRequest) as caught:
        planned_documents(document, RULES)

    assert (caught.value.field, said in caught.value.message) == (field, True)


@pytest.mark.parametrize("on", ["end", "checkpoint"])
@pytest.mark.parametrize("training_type", ["SFT", "LORA"])
def test_good_evaluations_pass_them(on: str, training_type: str) -> None:
    document = JobDocument.from_json(changed(plan(MATCH, on=on), ("training_config.training_type", training_type)))

    (made,) = planned_documents(document, RULES)

    assert made.kind == "evaluation"


def test_scripts_have_no_planned_evaluations() -> None:
    refused = refusal(custom(plan()))

    assert (refused.code, refused.field) == ("NOT_SUPPORTED", f"{PLANS}.0")


def test_adapter_of_a_base_model_with_credentials_is_measured_by_its_user() -> None:
    secret = ("training_config.base_model.credentials", {"access_key_id": "a", "secret_access_key": "b"})
    model = ("training_config.base_model.model_id", "s3://bucket/base")
    lora = ("training_config.training_type", "LORA")

    assert "base model" in refusal(changed(plan(on="checkpoint"), model, secret, lora)).message
    assert spec_of(changed(plan(on="checkpoint"), model, secret)).document.training_config.evaluations != ()


@pytest.mark.parametrize(
    ("benchmark", "field", "said"),
    [
        ({"name": "glue"}, "name", "exact_match"),
        ({"name": "f1"}, "dataset", "needs a dataset"),
        ({**MATCH, "parameters": {"temperature": 3}}, "parameters.temperature", "<= 2"),
    ],
)
def test_benchmarks_are_checked_with_the_training(benchmark: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(BadSpec) as caught:
        refuse_bad_benchmarks(JobDocument.from_json(changed(plan(MATCH, benchmark))))

    assert (caught.value.field, said in caught.value.message) == (f"{PLANS}.0.benchmarks.1.{field}", True)


def test_reward_models_are_measured_by_preferences_alone() -> None:
    rewards = [("training_config.training_type", "RLHF"), ("training_config.hyperparameters", {"algorithm": "reward"})]
    pairs = {"name": "preference", "dataset": {"path": "/srv/pairs.jsonl"}}
    refuse_bad_benchmarks(JobDocument.from_json(changed(plan(pairs), *rewards)))

    with pytest.raises(BadSpec, match="measure preference"):
        refuse_bad_benchmarks(JobDocument.from_json(changed(plan(MATCH), *rewards)))
