"""What a job document may mean, and what is taken out of it."""

import copy
from typing import Any

import pytest

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.job_spec import comparable_data
from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import is_secret, with_secrets
from tests.builders.submitted import GOOD, changed, custom, refusal, spec_of


def test_hyperparameters_may_stand_among_the_options_of_the_trainer() -> None:
    options = {"adam_beta1": "0.8", "ddp_bucket_cap_mb": "50"}

    document = spec_of(changed(("training_config.framework.config", options))).document

    assert document.training_config.hyperparameters == {"adam_beta1": "0.8"}
    assert document.training_config.framework.config == {"ddp_bucket_cap_mb": "50"}


def test_defaults_that_depend_on_other_fields_are_filled_in() -> None:
    spec = spec_of(GOOD)

    training, scheduling = spec.document.training_config, spec.document.scheduling_config
    assert (scheduling.queue, scheduling.priority, scheduling.max_runtime_seconds) == ("default", 5, None)
    assert spec.document.to_json()["scheduling_config"]["priority"] == 5
    assert spec.document.to_json()["training_config"]["max_retries"] == 3
    assert spec.document.to_json()["data_config"]["sources"][0]["format"] == "jsonl"
    assert training.resume_from_checkpoint is None
    assert (training.training_type, training.framework.type) == ("SFT", "HF_TRAINER")


def test_the_schedulers_priority_wins_over_the_trainings() -> None:
    document = changed(("training_config.priority", 8))

    assert spec_of(document).document.scheduling_config.priority == 8
    document["scheduling_config"]["priority"] = 2
    assert spec_of(document).document.scheduling_config.priority == 2


def test_evaluation_by_steps_follows_the_checkpoints_unless_it_says_how_often() -> None:
    document = changed(("training_config.evaluation", {"strategy": "steps"}))
    document["data_config"]["validation_split"] = 0.1

    assert spec_of(document).document.to_json()["training_config"]["evaluation"] == {"strategy": "steps", "steps": 500}


def test_the_submitted_document_is_not_changed() -> None:
    document = changed(("output_config.hub_token", "hf_x"))
    before = copy.deepcopy(document)

    spec_of(document)

    assert document == before


def test_secrets_that_were_taken_out_can_be_put_back() -> None:
    signed = "https://example.org/train.jsonl?sig=s"
    document = changed(
        ("training_config.environment", {"HF_TOKEN": "t", "MODE": "m"}),
        ("output_config.hub_token", "h"),
        ("data_config.sources.0.path", signed),
    )
    spec = spec_of(document)
    stored = spec.document
    assert signed not in str(stored.to_json())

    opened = with_secrets(stored, {**spec.secrets, "training_config.environment.GONE": "x", "data_config.none.y": "z"})

    assert opened.training_config.environment == {"HF_TOKEN": "t", "MODE": "m"}
    assert opened.output_config.hub_token == "h"
    assert opened.data_config.sources[0].path == signed
    assert spec_of(opened.to_json()).secrets == spec.secrets


def test_secrets_are_taken_out_and_masked() -> None:
    document = changed(("training_config.environment", {"HF_TOKEN": "t", "MODE": "m"}))
    document["output_config"]["hub_token"] = "h"

    spec = spec_of(document)

    assert dict(spec.secrets) == {"training_config.environment.HF_TOKEN": "t", "output_config.hub_token": "h"}
    assert spec.document.to_json()["training_config"]["environment"] == {"HF_TOKEN": "***", "MODE": "m"}
    assert spec.document.to_json()["output_config"]["hub_token"] == "***"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "my_password",
        "DB_PASSWD",
        "WANDB_API_KEY",
        "PRIVATE_KEY",
        "SSH_KEY",
        "APIKEY",
        "AWS_ACCESS_KEY_ID",
        "MYSQL_PASS",
        "MYSQL_PWD",
        "PASSPHRASE",
        "ENCRYPTION_KEY",
        "GITHUB_PAT",
        "DATABASE_URL",
        "HTTP_AUTHORIZATION",
        "REGISTRY_AUTH",
        "SENTRY_DSN",
        "hf_token",
    ],
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "TOKENIZERS_PARALLELISM", "MODE", "DATA_PATH", "PATIENCE", "AUTHOR", "COMPAT"]
)
def test_other_names_are_not_secret(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("postgresql://me:pass@db/x", True),
        ("redis://:pass@host:6379/0", True),
        ("https://token@github.com/x", True),
        ("amqp://me:p/w@host", True),
        ("http://proxy:8080", False),
        ("https://host/a@b", False),
        ("me@host", False),
    ],
)
def test_values_that_hold_a_password_are_secret_whatever_they_are_called(value: str, *, expected: bool) -> None:
    assert is_secret("BACKEND", value) is expected
    document = changed(("training_config.environment", {"BACKEND": value}))
    assert spec_of(document).document.training_config.environment["BACKEND"] == ("***" if expected else value)


def test_unknown_hyperparameters_list_the_known_ones() -> None:
    with pytest.raises(BadSpec, match=r"known: .*learning_rate"):
        spec_of(changed(("training_config.hyperparameters", {"lr": "1"})))


@pytest.mark.parametrize(
    ("training_type", "others"),
    [
        ("LORA", "DEEPSPEED, FSDP, HF_TRAINER"),
        ("QLORA", "DEEPSPEED, HF_TRAINER"),
        ("DPO", "DEEPSPEED, FSDP, HF_TRAINER"),
        ("RLHF", "DEEPSPEED, FSDP, HF_TRAINER"),
    ],
)
def test_what_a_framework_does_not_train_is_refused_with_those_that_do(training_type: str, others: str) -> None:
    megatron = ("training_config.framework.type", "MEGATRON")

    error = refusal(changed(megatron, ("training_config.training_type", training_type)))

    assert isinstance(error, NotSupportedYet)
    assert error.message == (
        f"MEGATRON does not train {training_type}: say framework.type {others}, or CUSTOM for a script of your own; "
        "MEGATRON trains CONTINUED_PRETRAIN, FULL_FINETUNE, SFT"
    )


def test_a_custom_script_reads_as_it_likes() -> None:
    document = custom(training_type="RLHF", hyperparameters={"anything": "at all"})
    document["training_config"]["base_model"]["model_kwargs"] = {"depth": 3}
    document["training_config"]["framework"]["config"] = {"option": "x"}
    document["data_config"] = {
        "sources": [
            {"path": "/srv/x.parquet", "sampling": {}, "filters": [{"column": "a", "op": "like"}], "weight": 0.0},
            {"path": "s3://bucket/raw", "format": "arrow"},
        ],
        "preprocess": {"tokenizer_config": {"any": 1}, "field_mapping": {"x": "y"}},
        "streaming": True,
        "validation_split": 0.0,
    }

    spec = spec_of(document)

    assert spec.document.training_config.framework.type == "CUSTOM"
    first, second = spec.document.to_json()["data_config"]["sources"]
    assert (first["format"], second["format"]) == ("parquet", "arrow")
    assert "split" not in first
    assert "max_seq_length" not in spec.document.to_json()["data_config"]
    assert spec.document.to_json()["training_config"]["framework"]["config"] == {"option": "x"}


@pytest.mark.parametrize(
    "path", ["framework.config", "framework.distributed.config", "base_model.model_kwargs", "hyperparameters"]
)
def test_credentials_of_a_script_belong_in_its_environment(path: str) -> None:
    error = refusal(custom((f"training_config.{path}", {"API-Key": "x"})))

    assert error.field == f"training_config.{path}.API-Key"
    assert "environment" in error.message


def test_a_script_exports_its_model_itself() -> None:
    assert refusal(custom(("output_config.merge_lora", True), training_type="LORA")).field == "output_config.merge_lora"
    assert refusal(custom(("output_config.export_format", "merged"))).field == "output_config.export_format"
    assert spec_of(custom(("output_config.output_path", "s3://bucket/out"))).document.name == "a"


@pytest.mark.parametrize("script", ["/home/me/train.py", "s3://bucket/train.py", "hf://org/x", "gopher://x"])
def test_a_custom_script_must_lie_below_a_root(script: str) -> None:
    document = custom(framework={"type": "CUSTOM", "custom_script_path": script})

    assert refusal(document).field == "training_config.framework.custom_script_path"


def test_sources_for_validation_are_validation_data() -> None:
    document = changed(("training_config.evaluation", {"strategy": "epoch"}))
    document["data_config"]["sources"].append({"path": "/srv/validation.jsonl", "split": "validation"})
    document["output_config"]["checkpoint"]["metric_for_best_model"] = "eval_loss"

    assert spec_of(document).document.to_json()["training_config"]["evaluation"] == {"strategy": "epoch"}


def test_a_script_may_read_nothing_but_validation_data() -> None:
    document = custom()
    document["data_config"] = {"sources": [{"path": "/srv/v.jsonl", "split": "validation"}], "validation_split": 0.1}

    assert spec_of(document).document.to_json()["data_config"]["validation_split"] == 0.1


@pytest.mark.parametrize("name", ["max_steps", "warmup_steps", "logging_steps", "eval_batch_size"])
@pytest.mark.parametrize("value", ["9" * 400, "2147483648", "-5", "1" * 5000])
def test_whole_numbers_beyond_what_can_be_stored_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadSpec) as raised:
        spec_of(changed(("training_config.hyperparameters", {name: value})))

    assert raised.value.field == f"training_config.hyperparameters.{name}"
    assert len(raised.value.message) < 200


def test_defaults_are_stored_in_the_document() -> None:
    data = spec_of(changed(("data_config.sources.0.sampling", {"count": 5}))).document.to_json()["data_config"]

    assert data == {
        "sources": [
            {"path": "/srv/train.jsonl", "format": "jsonl", "split": "train", "sampling": {"count": 5, "seed": 42}}
        ],
        "preprocess": {"padding": "longest", "truncation": True},
        "max_seq_length": 1024,
        "batch_size": 8,
        "gradient_accumulation_steps": 1,
        "num_workers": 0,
        "validation_split": 0.0,
        "seed": 42,
        "streaming": False,
    }


def test_a_streams_buffer_has_a_default_too() -> None:
    steps = ("training_config.hyperparameters", {"max_steps": "9"})
    streamed = spec_of(changed(("data_config.streaming", True), steps))

    assert streamed.document.to_json()["data_config"]["shuffle_buffer"] == 10_000


def test_data_is_compared_with_its_defaults_whenever_it_was_stored() -> None:
    stored = spec_of(GOOD).document
    stored_before = {**GOOD, "data_config": {**GOOD["data_config"], "seed": 42}}

    assert comparable_data(stored) == comparable_data(JobDocument.from_json(stored_before))
    assert comparable_data(stored) != comparable_data(spec_of(changed(("data_config.seed", 43))).document)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/a.csv", "csv"),
        ("/srv/a.csv.gz", "csv"),
        ("/srv/a.jsonl.zst", "jsonl"),
        ("/srv/a.ndjson", "jsonl"),
        ("s3://bucket/x/*.parquet", "parquet"),
        ("https://example.org/a.json?x=y.csv", "json"),
        ("/srv/A.TXT", "text"),
        ("hf://datasets/org/set@v1.0/a.arrow", "arrow"),
        ("/srv/data", None),
        ("hf://datasets/org/set", None),
        ("hf://datasets/org/set.v2", None),
        ("/srv/data.d/x", None),
        ("/srv/x.gz", None),
    ],
)
def test_formats_are_derived_from_suffixes(path: str, expected: str | None) -> None:
    document = changed(("data_config.sources.0.path", path))

    assert spec_of(document).document.to_json()["data_config"]["sources"][0].get("format") == expected


SIGNED = "https://example.org/a.jsonl?X-Amz-Algorithm=x&X-Amz-Signature=abc&part=1&%73ig=d%2Fe&hmac=f"


def test_signed_urls_are_secrets_of_the_job() -> None:
    spec = spec_of(changed(("data_config.sources.0.path", SIGNED)))

    shown = spec.document.to_json()["data_config"]["sources"][0]["path"]
    assert shown == "https://example.org/a.jsonl?X-Amz-Algorithm=x&X-Amz-Signature=***&part=1&%73ig=***&hmac=***"
    assert dict(spec.secrets) == {"data_config.sources.0.path": SIGNED}
    assert refusal(changed(("data_config.sources.0.path", shown))).field == "data_config.sources.0.path"


@pytest.mark.parametrize(
    "path", ["https://example.org/a?part=1&b64=x==&c&d=", "s3://bucket/a?sig=b.jsonl", "/srv/key?token=a"]
)
def test_other_places_are_shown_as_they_are(path: str) -> None:
    spec = spec_of(changed(("data_config.sources.0.path", path)))

    assert spec.document.to_json()["data_config"]["sources"][0]["path"] == path
    assert not spec.secrets


def test_forwarded_tokens_are_secrets_of_the_job() -> None:
    document = changed(("data_config.sources.0.path", "scaidrive://team/train.jsonl"))

    spec = spec_of(document, scaidrive="t1", user="t2")

    assert dict(spec.secrets) == {"forwarded.scaidrive": "t1", "forwarded.user": "t2"}
    assert "t1" not in str(spec.document)


@pytest.mark.parametrize(
    ("change", "forwarded"),
    [
        (("data_config.sources.0.path", "scaidrive://team/train.jsonl"), {}),
        (("data_config.sources.0.path", "SCAIDRIVE://team/train.jsonl"), {"scaiatlas": "t"}),
        (("data_config.sources.0.path", "scaiatlas://team/train.jsonl"), {"scaidrive": "t"}),
        (("output_config.output_path", "scaidrive://team/out"), {"scaiatlas": "t"}),
    ],
)
def test_places_of_the_user_need_the_users_token(change: tuple[str, Any], forwarded: dict[str, str]) -> None:
    error = refusal(changed(change), **forwarded)

    assert error.field == change[0]
    assert "X-User-Token" in error.message
    assert spec_of(changed(change), user="t").document.name == "a"
