"""Which trainings may plan evaluations, and what the plans may read."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.evaluations.rules import refuse_bad_benchmarks
from app.domain.spec.document import benchmark_files, locations
from app.domain.spec.model import JobDocument
from tests.builders.submitted import changed, custom, refusal, spec_of

PLANS = "training_config.evaluations"
MATCH = {"name": "exact_match", "dataset": {"path": "/srv/q.jsonl"}}


def plan(*benchmarks: dict[str, Any], on: str = "end") -> tuple[str, Any]:
    return PLANS, [{"on": on, "benchmarks": list(benchmarks or [MATCH])}]


def trained_by(framework: str) -> tuple[str, Any]:
    return "training_config.framework.type", framework


@pytest.mark.parametrize("on", ["end", "checkpoint", "best"])
def test_plan_is_stored_as_it_was_given(on: str) -> None:
    document = changed(plan(on=on))

    assert (
        spec_of(document).document.to_json()["training_config"]["evaluations"]
        == document["training_config"]["evaluations"]
    )


def test_place_of_a_dataset_is_among_what_the_job_reads() -> None:
    scored = {"name": "custom:/srv/brevity.py", "dataset": {"path": "/srv/q.jsonl"}}
    document = JobDocument.from_json(changed(plan(MATCH, scored)))

    assert (f"{PLANS}.0.benchmarks.0.dataset.path") in [field for _, field in locations(document)]
    assert list(benchmark_files(document)) == [("/srv/brevity.py", f"{PLANS}.0.benchmarks.1.name")]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ([plan(on="checkpoint"), trained_by("FSDP")], f"{PLANS}.0.on", "set on to end"),
        ([plan(), ("output_config.export_format", "gguf")], f"{PLANS}.0.on", "no engine loads"),
        ([plan({"name": "f1", "dataset": {"path": " "}})], f"{PLANS}.0.benchmarks.0.dataset.path", "empty"),
        ([plan({"name": "f1", "dataset": {"path": "/etc/q"}})], f"{PLANS}.0.benchmarks.0.dataset.path", "outside"),
        ([plan({"name": "custom:/etc/x.py"})], f"{PLANS}.0.benchmarks.0.name", "outside"),
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
