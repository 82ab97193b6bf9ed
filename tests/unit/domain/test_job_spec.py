"""What a job document may mean, and what is taken out of it."""

import copy
from typing import Any

import pytest

from app.domain import job_rules
from app.domain.errors import BadSpec, InvalidRequest, NotSupportedYet
from app.domain.job_spec import JobSpec, from_document, is_secret
from app.domain.locations import ReadingRules
from app.domain.not_supported import GAPS

RULES = ReadingRules(roots=("/srv",))
DOCUMENT: dict[str, Any] = {
    "name": "a",
    "labels": {"team": "x"},
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "org/model"},
        "framework": {"type": "HF_TRAINER"},
    },
    "data_config": {"sources": [{"path": "/srv/train.jsonl"}], "validation_split": 0.0},
    "resource_config": {"gpu_count": 1, "device_type": "auto"},
    "output_config": {"checkpoint": {"save_steps": 500, "save_total_limit": 3}},
    "scheduling_config": {"queue": "default"},
}

SCRIPT = {"framework": {"type": "CUSTOM", "custom_script_path": "/srv/train.py"}}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good document with one value replaced."""
    document = copy.deepcopy(DOCUMENT)
    node: Any = document
    *parents, last = path.split(".")
    for name in parents:
        node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
    node[last] = value
    return document


def spec_of(document: dict[str, Any]) -> JobSpec:
    return from_document(document, RULES)


def custom(**training: Any) -> dict[str, Any]:
    return changed("training_config", {**DOCUMENT["training_config"], **SCRIPT, **training})


def test_defaults_that_depend_on_other_fields_are_filled_in() -> None:
    spec = spec_of(DOCUMENT)

    assert (spec.queue, spec.priority, spec.max_retries, spec.max_runtime_seconds) == ("default", 5, 3, None)
    assert spec.document["scheduling_config"]["priority"] == 5
    assert spec.document["data_config"]["sources"][0]["format"] == "jsonl"
    assert spec.resume_from_checkpoint is None
    assert (spec.training_type, spec.framework) == ("SFT", "HF_TRAINER")


def test_the_schedulers_priority_wins_over_the_trainings() -> None:
    document = changed("training_config.priority", 8)

    assert spec_of(document).priority == 8
    document["scheduling_config"]["priority"] = 2
    assert spec_of(document).priority == 2


def test_evaluation_by_steps_follows_the_checkpoints_unless_it_says_how_often() -> None:
    document = changed("training_config.evaluation", {"strategy": "steps"})
    document["data_config"]["validation_split"] = 0.1

    assert spec_of(document).document["training_config"]["evaluation"] == {"strategy": "steps", "steps": 500}


def test_the_submitted_document_is_not_changed() -> None:
    document = changed("output_config.hub_token", "hf_x")
    before = copy.deepcopy(document)

    spec_of(document)

    assert document == before


def test_secrets_are_taken_out_and_masked() -> None:
    document = changed("training_config.environment", {"HF_TOKEN": "t", "MODE": "m"})
    document["output_config"]["hub_token"] = "h"

    spec = spec_of(document)

    assert dict(spec.secrets) == {"training_config.environment.HF_TOKEN": "t", "output_config.hub_token": "h"}
    assert spec.document["training_config"]["environment"] == {"HF_TOKEN": "***", "MODE": "m"}
    assert spec.document["output_config"]["hub_token"] == "***"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY", "my_password", "DB_PASSWD", "WANDB_API_KEY", "PRIVATE_KEY", "SSH_KEY", "APIKEY",
        "AWS_ACCESS_KEY_ID", "MYSQL_PASS", "MYSQL_PWD", "PASSPHRASE", "ENCRYPTION_KEY", "GITHUB_PAT", "DATABASE_URL",
        "HTTP_AUTHORIZATION", "REGISTRY_AUTH", "SENTRY_DSN", "hf_token",
    ],
)  # fmt: skip
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "TOKENIZERS_PARALLELISM", "MODE", "DATA_PATH", "PATIENCE", "AUTHOR", "COMPAT"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("postgresql://me:pass@db/x", True), ("redis://:pass@host:6379/0", True), ("https://token@github.com/x", True),
        ("amqp://me:p/w@host", True), ("http://proxy:8080", False), ("https://host/a@b", False), ("me@host", False),
    ],
)  # fmt: skip
def test_values_that_hold_a_password_are_secret_whatever_they_are_called(value: str, *, expected: bool) -> None:
    assert is_secret("BACKEND", value) is expected
    document = changed("training_config.environment", {"BACKEND": value})
    assert spec_of(document).document["training_config"]["environment"]["BACKEND"] == ("***" if expected else value)


REFUSED: list[tuple[str, Any, str, type[InvalidRequest]]] = [
    ("training_config.base_model.model_id", " ", "training_config.base_model.model_id", BadSpec),
    ("training_config.base_model.model_id", "/etc/model", "training_config.base_model.model_id", BadSpec),
    ("training_config.base_model.model_id", "s3://b/model", "training_config.base_model.model_id", NotSupportedYet),
    ("training_config.base_model.tokenizer_id", "/etc", "training_config.base_model.tokenizer_id", BadSpec),
    ("training_config.base_model.dtype", "float16", "training_config.base_model.dtype", BadSpec),
    ("training_config.base_model.dtype", "double", "training_config.base_model.dtype", BadSpec),
    ("training_config.training_type", "DPO", "training_config.training_type", NotSupportedYet),
    ("training_config.framework.type", "CUSTOM", "training_config.framework.custom_script_path", BadSpec),
    ("training_config.framework.custom_script_path", "/srv/x", "training_config.framework.custom_script_path", BadSpec),
    ("training_config.framework.distributed", {"world_size": 3},
     "training_config.framework.distributed.world_size", BadSpec),
    ("training_config.framework.distributed", {"backend": "mpi"},
     "training_config.framework.distributed.backend", NotSupportedYet),
    ("training_config.hyperparameters", {"lr": "1"}, "training_config.hyperparameters.lr", BadSpec),
    ("training_config.environment", {"LD_PRELOAD": "x"}, "training_config.environment.LD_PRELOAD", BadSpec),
    ("training_config.environment", {"path": "x"}, "training_config.environment.path", BadSpec),
    ("training_config.environment", {"TRAINYARD_URL": "x"}, "training_config.environment.TRAINYARD_URL", BadSpec),
    ("training_config.evaluation", {"strategy": "epoch"}, "training_config.evaluation.strategy", BadSpec),
    ("training_config.evaluation", {"strategy": "no", "steps": 5}, "training_config.evaluation.steps", BadSpec),
    ("data_config.sources", [], "data_config.sources", BadSpec),
    ("data_config.sources.0.path", "", "data_config.sources.0.path", BadSpec),
    ("data_config.sources.0.path", "/etc/passwd", "data_config.sources.0.path", BadSpec),
    ("data_config.sources.0.path", "/srv/x.csv", "data_config.sources.0.format", NotSupportedYet),
    ("data_config.validation_split", 1.0, "data_config.validation_split", BadSpec),
    ("data_config.sources.0.split", "validation", "data_config.sources", BadSpec),
    ("data_config", {"sources": [{"path": "/srv/a.jsonl"}, {"path": "/srv/b.jsonl", "split": "validation"}],
                     "validation_split": 0.1}, "data_config.validation_split", BadSpec),
    ("resource_config.gpu_count", 0, "resource_config.gpu_count", BadSpec),
    ("resource_config", {"gpu_count": 1, "device_type": "cpu", "gpu_type": "a100"},
     "resource_config.gpu_type", BadSpec),
    ("resource_config", {"gpu_count": 1, "device_type": "cpu", "gpu_memory_min_mb": 5},
     "resource_config.gpu_memory_min_mb", BadSpec),
    ("output_config.checkpoint.greater_is_better", True, "output_config.checkpoint.greater_is_better", BadSpec),
    ("output_config.checkpoint.metric_for_best_model", "eval_loss",
     "output_config.checkpoint.metric_for_best_model", BadSpec),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "field", "kind"), REFUSED)
def test_a_broken_rule_names_its_field(path: str, value: Any, field: str, kind: type[InvalidRequest]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        spec_of(changed(path, value))

    assert type(raised.value) is kind
    assert raised.value.field == field


def test_unknown_hyperparameters_list_the_known_ones() -> None:
    with pytest.raises(BadSpec, match=r"known: .*learning_rate"):
        spec_of(changed("training_config.hyperparameters", {"lr": "1"}))


def test_unsupported_pairs_list_the_supported_ones() -> None:
    with pytest.raises(NotSupportedYet, match=r"HF_TRAINER with SFT.*CUSTOM with any"):
        spec_of(changed("training_config.framework.type", "FSDP"))


def test_a_custom_script_takes_every_type_format_and_hyperparameter() -> None:
    document = custom(training_type="RLHF", hyperparameters={"anything": "at all"})
    document["data_config"]["sources"] = [{"path": "/srv/x.parquet"}, {"path": "/srv/raw", "format": "arrow"}]

    spec = spec_of(document)

    assert spec.framework == "CUSTOM"
    assert [source["format"] for source in spec.document["data_config"]["sources"]] == ["parquet", "arrow"]


def test_a_custom_script_must_lie_below_a_root() -> None:
    document = custom(framework={"type": "CUSTOM", "custom_script_path": "/home/me/train.py"})

    with pytest.raises(BadSpec) as raised:
        spec_of(document)

    assert raised.value.field == "training_config.framework.custom_script_path"


def test_sources_for_validation_are_validation_data() -> None:
    document = changed("training_config.evaluation", {"strategy": "epoch"})
    document["data_config"]["sources"].append({"path": "/srv/validation.jsonl", "split": "validation"})
    document["output_config"]["checkpoint"]["metric_for_best_model"] = "eval_loss"

    assert spec_of(document).document["training_config"]["evaluation"] == {"strategy": "epoch"}


def test_a_script_may_read_nothing_but_validation_data() -> None:
    document = custom()
    document["data_config"] = {"sources": [{"path": "/srv/v.jsonl", "split": "validation"}], "validation_split": 0.1}

    assert spec_of(document).document["data_config"]["validation_split"] == 0.1


@pytest.mark.parametrize("name", ["max_steps", "warmup_steps", "logging_steps", "eval_batch_size"])
@pytest.mark.parametrize("value", ["9" * 400, "2147483648", "-5", "1" * 5000])
def test_whole_numbers_beyond_what_can_be_stored_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadSpec) as raised:
        spec_of(changed("training_config.hyperparameters", {name: value}))

    assert raised.value.field == f"training_config.hyperparameters.{name}"
    assert len(raised.value.message) < 200


def test_every_rule_is_broken_by_some_case() -> None:
    broken = set()
    for path, value, _, _ in REFUSED:
        document = {**changed(path, value)}
        document["training_config"] = {"hyperparameters": {}, "environment": {}, **document["training_config"]}
        for rule in job_rules.RULES:
            try:
                rule(document)
            except InvalidRequest:
                broken.add(rule)
                break
            except KeyError:  # an unsupported pair has no table; an earlier rule has refused it
                break

    assert broken == set(job_rules.RULES) - {job_rules._formats_can_be_read}


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.path)
def test_what_is_not_supported_yet_is_refused_and_not_ignored(gap: Any) -> None:
    path = gap.path.replace("sources.*", "sources.0").replace("preprocess.*", "preprocess.truncation")

    with pytest.raises(NotSupportedYet) as raised:
        spec_of(changed(path, True if False in gap.allowed else "anything"))

    assert raised.value.field == path
    assert gap.way_out in raised.value.message


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.path)
def test_what_is_not_supported_yet_may_be_said_at_its_default(gap: Any) -> None:
    path = gap.path.replace("sources.*", "sources.0").replace("preprocess.*", "preprocess.truncation")

    for value in (None, "", [], {}, *gap.allowed):
        document = changed(path, value)
        document["data_config"]["sources"].append({"path": "/srv/more.jsonl"})  # if the first is for validation
        assert spec_of(document).name == document["name"]


def test_gloo_is_for_cpu_slots_and_scripts() -> None:
    document = changed("training_config.framework.distributed", {"world_size": 1, "backend": "gloo"})
    spec_of(document)
    document["resource_config"]["device_type"] = "cuda"

    with pytest.raises(NotSupportedYet, match="GPUs use nccl"):
        spec_of(document)
