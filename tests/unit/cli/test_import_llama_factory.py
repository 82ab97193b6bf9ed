"""Configurations of LLaMA-Factory as job documents, which the API accepts."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.client.imports.command import imported
from app.cli.client.imports.draft import Imported
from app.cli.client.imports.keys import NotImported
from app.cli.client.imports.llama_factory_keys import REASONS
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema

LORA = """
### model
model_name_or_path: Qwen/Qwen3-4B
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
### dataset
dataset: support,handbook
dataset_dir: /srv/data
template: qwen3
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
dataloader_num_workers: 4
### output
output_dir: saves/qwen3-4b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
use_swanlab: true
### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
"""
INFO = {
    "support": {
        "file_name": "support.json",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    },
    "handbook": {
        "hf_hub_url": "acme/handbook",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    },
    "old": {"file_name": "old.json", "formatting": "sharegpt"},
    "alpaca": {"file_name": "alpaca.json"},
    "pairs": {
        "file_name": "pairs.json",
        "ranking": True,
        "columns": {"prompt": "question", "chosen": "a", "rejected": "b"},
    },
    "corpus": {"file_name": "corpus.jsonl", "columns": {"prompt": "body"}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the configuration is, with its data."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(INFO))
    return tmp_path


def converted(text: str, folder: Path, gpus: int = 1, **changes: Any) -> Imported:
    config = {**yaml.safe_load(text), "dataset_dir": "data", **changes}
    return imported(config, "llamafactory", folder, default_name="file", gpus=gpus)


def accepted(found: Imported) -> dict[str, Any]:
    from_document(SubmitJobSchema().load(found.document), ReadingRules(roots=("/srv",)))
    return found.document


def reasons(found: Imported) -> dict[str, str]:
    return {left.key: left.reason for left in found.left_out}


MINIMAL = """
model_name_or_path: /srv/models/base
stage: sft
finetuning_type: full
dataset: support
per_device_train_batch_size: 2
learning_rate: 1.0e-5
bf16: true
"""


def test_lora_is_carried_over_key_by_key(folder: Path) -> None:
    document = accepted(converted(LORA, folder))

    assert document["name"] == "sft"
    training = document["training_config"]
    assert training["training_type"] == "LORA"
    assert training["base_model"] == {"model_id": "Qwen/Qwen3-4B", "trust_remote_code": True, "dtype": "bfloat16"}
    assert training["hyperparameters"] == {
        "learning_rate": "0.0001",
        "num_train_epochs": "3",
        "warmup_ratio": "0.1",
        "eval_batch_size": "1",
        "logging_steps": "10",
        "lora_r": "8",
        "lora_alpha": "16",
        "lora_dropout": "0",
        "lora_target_modules": "all-linear",
        "lr_scheduler_type": "cosine",
        "gradient_checkpointing": "true",
    }
    assert training["evaluation"] == {"strategy": "steps", "steps": 500}
    assert document["data_config"] == {
        "sources": [
            {"path": "data/support.json", "sampling": {"count": 1000}},
            {"path": "hf://datasets/acme/handbook", "sampling": {"count": 1000}},
        ],
        "max_seq_length": 2048,
        "batch_size": 1,
        "gradient_accumulation_steps": 8,
        "validation_split": 0.1,
        "num_workers": 4,
    }
    assert document["output_config"] == {"checkpoint": {"save_steps": 500}}


def test_each_key_that_is_not_carried_over_is_named_and_no_other(folder: Path) -> None:
    found = converted(LORA, folder, my_own_option=3)

    assert set(reasons(found)) == {"template", "output_dir", "use_swanlab", "my_own_option"}


@pytest.mark.parametrize(
    ("name", "mapping"), [("old", None), ("alpaca", {"prompt": "instruction", "completion": "output"})]
)
def test_data_sets(folder: Path, name: str, mapping: dict[str, str] | None) -> None:
    data = accepted(converted(MINIMAL, folder, dataset=name))["data_config"]

    assert data["sources"] == [{"path": f"data/{name}.json"}]
    assert data.get("preprocess", {}).get("field_mapping") == mapping


def test_data_sets_that_nothing_explains_are_taken_for_files(tmp_path: Path) -> None:
    found = converted(MINIMAL, tmp_path)

    assert accepted(found)["data_config"]["sources"] == [{"path": "data/support.json"}]
    assert "dataset_info.json is not here" in reasons(found)["dataset"]


def test_defaults_are_those_of_llama_factory(folder: Path) -> None:
    config = {name: value for name, value in yaml.safe_load(MINIMAL).items() if name != "learning_rate"}

    document = accepted(imported(config, "llamafactory", folder, default_name="file", gpus=1))

    data, hyperparameters = document["data_config"], document["training_config"]["hyperparameters"]
    assert (data["max_seq_length"], hyperparameters["learning_rate"]) == (2048, "5e-5")
    assert (hyperparameters["gradient_checkpointing"], hyperparameters["lr_scheduler_type"]) == ("true", "linear")
    assert document["training_config"]["base_model"]["dtype"] == "float32"


@pytest.mark.parametrize(
    ("changes", "training_type"),
    [
        ({"finetuning_type": "lora", "quantization_bit": 4, "quantization_type": "fp4"}, "QLORA"),
        ({"stage": "pt", "dataset": "corpus"}, "CONTINUED_PRETRAIN"),
        ({"stage": "pt", "finetuning_type": "lora", "dataset": "corpus"}, "LORA"),
        ({"stage": "dpo", "finetuning_type": "lora", "dataset": "pairs", "pref_beta": 0.2}, "DPO"),
        ({"stage": "rm", "dataset": "pairs"}, "RLHF"),
        (
            {"stage": "ppo", "dataset": "alpaca", "reward_model": "/srv/models/reward", "reward_model_type": "full"},
            "RLHF",
        ),
    ],
)
def test_stages(folder: Path, changes: dict[str, Any], training_type: str) -> None:
    assert accepted(converted(MINIMAL, folder, **changes))["training_config"]["training_type"] == training_type


def test_preferences(folder: Path) -> None:
    found = converted(
        MINIMAL, folder, stage="dpo", finetuning_type="lora", dataset="pairs", pref_loss="ipo", pref_ftx=0.1
    )

    document = accepted(found)

    hyperparameters = document["training_config"]["hyperparameters"]
    assert (hyperparameters["use_lora"], hyperparameters["loss_type"], hyperparameters["lora_r"]) == (
        "true",
        "ipo",
        "8",
    )
    mapping = {"prompt": "question", "chosen": "a", "rejected": "b"}
    assert document["data_config"]["preprocess"]["field_mapping"] == mapping
    assert "pref_ftx" in reasons(found)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ds_z0_config.json", {"zero_stage": "1"}),
        ("ds_z2_config.json", {"zero_stage": "2"}),
        ("ds_z3_config.json", {"zero_stage": "3"}),
        ("ds_z3_offload_config.json", {"zero_stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"}),
    ],
)
def test_deepspeed_by_the_name_of_its_file(folder: Path, name: str, config: dict[str, str]) -> None:
    found = converted(MINIMAL, folder, gpus=8, deepspeed=f"examples/deepspeed/{name}")

    assert accepted(found)["training_config"]["framework"] == {"type": "DEEPSPEED", "config": config}


def test_settings_of_deepspeed_that_are_not_carried_over_are_named(folder: Path) -> None:
    zero = {"stage": 2, "allgather_bucket_size": 5e8, "overlap_comm": True}
    (folder / "ds.json").write_text(json.dumps({"zero_optimization": zero, "optimizer": {"type": "Lion"}, "bf16": {}}))

    found = converted(MINIMAL, folder, gpus=8, deepspeed="ds.json")

    accepted(found)
    assert set(reasons(found)) == {"deepspeed.optimizer", "deepspeed.zero_optimization.allgather_bucket_size"}


def test_shares_of_data_sets(folder: Path) -> None:
    found = converted(
        MINIMAL, folder, dataset="support,handbook", mix_strategy="interleave_under", interleave_probs="0.75,0.25"
    )

    assert [source["weight"] for source in accepted(found)["data_config"]["sources"]] == [0.75, 0.25]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage": "kto"}, "stage: kto has no training type"),
        ({"finetuning_type": "freeze"}, "finetuning_type: freeze has no training type"),
        ({"stage": "dpo", "pref_loss": "simpo"}, "pref_loss: simpo has no training type"),
        ({"model_name_or_path": None}, "model_name_or_path: is missing"),
        ({"dataset": None}, "dataset: names no data"),
    ],
)
def test_a_training_that_no_type_is_gets_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotImported, match=message):
        converted(MINIMAL, folder, **changes)


def test_no_known_key_is_dropped_without_a_word(folder: Path) -> None:
    for name in [name.replace("*", "x") for name in REASONS]:
        changes: dict[str, Any] = {"val_size": 0.1, name: "something"}

        found = reasons(converted(MINIMAL, folder, **changes))

        assert "unknown" not in found.get(name, "unknown"), name
