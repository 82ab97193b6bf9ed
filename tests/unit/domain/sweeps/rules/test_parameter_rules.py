"""Which parameters a job may have: hyperparameters, fields of the document, environment variables."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.sweeps.rules.paths import kind_of
from tests.unit.domain.sweeps.sweep_documents import JOB, PLAIN, RATE, SCRIPT, refused


@pytest.mark.parametrize(
    ("parameters", "field", "part"),
    [
        ({}, "parameters", "1 to 256"),
        ({"learnig_rate": RATE}, "parameters.learnig_rate", "did you mean learning_rate?"),
        ({"hub_token": "x"}, "parameters.hub_token", "no hyperparameter"),
        ({"lora_r": {"type": "int", "min": 0, "max": 8}}, "parameters.lora_r", "whole number >= 1"),
        ({"lora_r": {"type": "double", "min": 1, "max": 8}}, "parameters.lora_r", "use type int"),
        ({"lora_r": {"values": [8, 5_000]}}, "parameters.lora_r", "'5000'"),
        ({"learning_rate": {"type": "double", "min": 1, "max": 11}}, "parameters.learning_rate", "'11.0'"),
        ({"lr_scheduler_type": {"values": ["linear", "sine"]}}, "parameters.lr_scheduler_type", "'sine'"),
        ({"use_dora": {"type": "int", "min": 0, "max": 1}}, "parameters.use_dora", "true or false"),
        ({"lora_r": True}, "parameters.lora_r", "True is not a whole number"),
        ({"data_config.bach_size": 1}, "parameters.data_config.bach_size", "did you mean batch_size?"),
        (
            {"data_config.batch_size": {"type": "double", "min": 1, "max": 2}},
            "parameters.data_config.batch_size",
            "whole",
        ),
        ({"data_config.validation_split": "x"}, "parameters.data_config.validation_split", "is a number"),
        ({"data_config.streaming": 1}, "parameters.data_config.streaming", "is a true or false"),
        ({"training_config.base_model.model_id": 1}, "parameters.training_config.base_model.model_id", "is a text"),
        (
            {"training_config.base_model.model_id": {"values": ["https://u:p@h/m"]}},
            "parameters.training_config.base_model.model_id",
            "password",
        ),
        ({"data_config.sources.0.path": "https://h/x?sig=abc"}, "parameters.data_config.sources.0.path", "signature"),
        ({"environment.HF_TOKEN": "x"}, "parameters.environment.HF_TOKEN", "secret"),
        ({"environment.PATH": "x"}, "parameters.environment.PATH", "reserved"),
        ({"environment.A-B": "x"}, "parameters.environment.A-B", "no name of an environment variable"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], field: str, part: str) -> None:
    error = refused(**{**PLAIN, "parameters": parameters})

    assert error.field == field
    assert part in error.message


@pytest.mark.parametrize(
    "path",
    [
        "labels.x",
        "training_config.training_type",
        "training_config.framework.type",
        "training_config.priority",
        "training_config.resume_from_checkpoint",
        "training_config.base_model.credentials.token",
        "data_config.sources.0.credentials.key",
        "data_config.sources.0.storage_options.anon",
        "output_config.output_path",
        "output_config.output_model_name",
        "output_config.hub_token",
        "output_config.hub_repo_id",
        "scheduling_config.queue",
        "scheduling_config.priority",
        "resource_config.mounts.0.files.0.content",
        "resource_config.user.uid",
    ],
)
def test_what_may_not_vary(path: str) -> None:
    error = refused(**{**PLAIN, "parameters": {path: "x"}})

    assert error.field == f"parameters.{path}"
    assert "may not vary" in error.message


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data_config.seed", "whole number"),
        ("data_config.validation_split", "number"),
        ("data_config.streaming", "true or false"),
        ("training_config.base_model.model_id", "text"),
        ("training_config.base_model.revision", "text"),
        ("training_config.base_model.from_config", "true or false"),
        ("training_config.evaluation.steps", "whole number"),
        ("resource_config.gpu_type", "text"),
        ("resource_config.limits.cpu_cores", "number"),
        ("scheduling_config.on_preemption", "text"),
        ("data_config.sources.0.sampling.fraction", "number"),
    ],
)
def test_fields_that_may_vary(path: str, kind: str) -> None:
    assert kind_of(path, JOB) == kind


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("data_config.preprocess", "is a section"),
        ("data_config.preprocess.tokenizer_config", "no number"),
        ("data_config.preprocess.tokenizer_config.x", "no number"),
        ("data_config.seed.x", "no number"),
        ("data_config.sources", "by index"),
        ("data_config.sources.0", "by index"),
        ("data_config.sources.1.weight", "job has 1"),
        ("data_config.sources.x.weight", "by index"),
        ("data_config.sources.0.filters.0.op", "job has 0"),
        ("training_config.hyperparameters.lora_r", "shorter name, lora_r"),
        ("training_config.environment.X", "shorter name, environment.X"),
        ("data_config.given", "no field"),
        ("x.y", "no field"),
    ],
)
def test_paths_that_are_no_fields(path: str, part: str) -> None:
    with pytest.raises(BadSpec, match=part) as caught:
        kind_of(path, JOB)

    assert caught.value.field == f"parameters.{path}"


def test_options_of_a_script_are_no_credentials() -> None:
    error = refused(**{**PLAIN, "job": SCRIPT, "parameters": {"api_key": "x"}})

    assert (error.field, "credential" in error.message) == ("parameters.api_key", True)


def test_words_of_a_script_name_parameters() -> None:
    error = refused(**{**PLAIN, "job": SCRIPT, "parameters": {"lr": 1, "optimm": "a", "data_config.seed": 1}})

    assert error.field == "job.training_config.framework.custom_arguments.2"
    assert "did you mean optimm?" in error.message
