"""Configurations of axolotl as job documents, which the API accepts."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.client.imports.axolotl_keys import REASONS
from app.cli.client.imports.command import imported
from app.cli.client.imports.draft import Imported
from app.cli.client.imports.keys import NotImported
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.schemas.jobs import SubmitJobSchema

QLORA = """
base_model: meta-llama/Llama-3.1-8B
model_type: AutoModelForCausalLM
tokenizer_type: AutoTokenizer
hub_model_id: acme/support-qlora
load_in_8bit: false
load_in_4bit: true
strict: false
chat_template: llama3
datasets:
  - path: /srv/data/support.jsonl
    type: chat_template
    field_messages: dialogue
    message_property_mappings: {role: speaker, content: said}
    roles:
      user: [customer]
      assistant: [agent]
    train_on_eos: turn
dataset_prepared_path: last_run_prepared
val_set_size: 0.05
output_dir: ./outputs/support-qlora
adapter: qlora
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
lora_modules_to_save: [embed_tokens, lm_head]
wandb_project: support
wandb_entity:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_32bit
lr_scheduler: cosine
learning_rate: 0.0002
train_on_inputs: false
group_by_length: false
bf16: auto
fp16:
tf32: false
gradient_checkpointing: unsloth
logging_steps: 5
flash_attention: true
warmup_steps: 10
evals_per_epoch: 4
eval_sample_packing: true
saves_per_epoch: 1
weight_decay: 0.01
special_tokens:
  pad_token: <|end_of_text|>
my_own_option: 3
"""


def converted(text: str, folder: Path = Path(), gpus: int = 1, **changes: Any) -> Imported:
    return imported({**yaml.safe_load(text), **changes}, "axolotl", folder, default_name="file", gpus=gpus)


def accepted(found: Imported) -> dict[str, Any]:
    """The document, which schema and rules of the API accept, without a word that something has no effect."""
    document = {name: section for name, section in found.document.items() if name != "tracking"}  # it needs a key
    from_document(SubmitJobSchema().load(document), ReadingRules(roots=("/srv",)))
    return found.document


def reasons(found: Imported) -> dict[str, str]:
    return {left.key: left.reason for left in found.left_out}


MINIMAL = """
base_model: /srv/models/base
datasets:
  - {path: /srv/data/train.jsonl, type: chat_template}
micro_batch_size: 2
gradient_accumulation_steps: 1
learning_rate: 0.00001
"""


def test_qlora_is_carried_over_key_by_key() -> None:
    document = accepted(converted(QLORA))

    assert document["name"] == "support-qlora"
    training = document["training_config"]
    assert training["training_type"] == "QLORA"
    assert training["framework"] == {"type": "HF_TRAINER"}
    assert training["base_model"] == {
        "model_id": "meta-llama/Llama-3.1-8B",
        "dtype": "bfloat16",
        "model_kwargs": {"attn_implementation": "flash_attention_2"},
    }
    assert training["hyperparameters"] == {
        "num_train_epochs": "4",
        "learning_rate": "0.0002",
        "warmup_steps": "10",
        "weight_decay": "0.01",
        "logging_steps": "5",
        "group_by_length": "false",
        "packing": "true",
        "lora_r": "32",
        "lora_alpha": "16",
        "lora_dropout": "0.05",
        "lora_target_modules": "all-linear",
        "modules_to_save": "embed_tokens,lm_head",
        "lr_scheduler_type": "cosine",
        "gradient_checkpointing": "true",
    }
    assert document["data_config"] == {
        "sources": [{"path": "/srv/data/support.jsonl"}],
        "max_seq_length": 4096,
        "batch_size": 2,
        "gradient_accumulation_steps": 4,
        "validation_split": 0.05,
        "preprocess": {
            "tokenizer_config": {"pad_token": "<|end_of_text|>"},
            "field_mapping": {
                "messages": "dialogue",
                "messages.role": "speaker",
                "messages.content": "said",
                "roles.customer": "user",
                "roles.agent": "assistant",
            },
        },
    }
    assert document["output_config"] == {
        "checkpoint": {"save_strategy": "epoch"},
        "push_to_hub": True,
        "hub_repo_id": "acme/support-qlora",
    }
    assert document["tracking"] == [{"kind": "wandb", "experiment": "support"}]


def test_each_key_that_is_not_carried_over_is_named_and_no_other() -> None:
    assert set(reasons(converted(QLORA))) == {
        "model_type",
        "tokenizer_type",
        "chat_template",
        "datasets[0].train_on_eos",
        "output_dir",
        "optimizer",
        "gradient_checkpointing",
        "evals_per_epoch",
        "eval_sample_packing",
        "my_own_option",
    }
    assert "is unknown to this import" in reasons(converted(QLORA))["my_own_option"]


@pytest.mark.parametrize(
    ("dataset", "source", "mapping"),
    [
        ({"path": "acme/chats", "type": "chat_template"}, {"path": "hf://datasets/acme/chats"}, None),
        (
            {"path": "acme/chats", "type": "chat_template", "revision": "v2", "split": "train[:80%]"},
            {"path": "hf://datasets/acme/chats@v2", "split": "train[:80%]"},
            None,
        ),
        (
            {"path": "acme/chats", "type": "chat_template", "split": "train_sft"},
            {"path": "hf://datasets/acme/chats/data/train_sft-*.parquet", "split": "train"},
            None,
        ),
        ({"path": "/srv/data/old.jsonl", "type": "sharegpt"}, {"path": "/srv/data/old.jsonl"}, None),
        (
            {"path": "/srv/data/a.jsonl", "type": "alpaca"},
            {"path": "/srv/data/a.jsonl"},
            {"prompt": "instruction", "completion": "output"},
        ),
        (
            {"path": "json", "data_files": "/srv/data/raw", "type": "completion", "field": "body"},
            {"path": "/srv/data/raw"},
            {"text": "body"},
        ),
        (
            {
                "path": "s3://corpus/q.parquet",
                "ds_type": "parquet",
                "type": {"field_instruction": "q", "field_output": "a"},
            },
            {"path": "s3://corpus/q.parquet", "format": "parquet"},
            {"prompt": "q", "completion": "a"},
        ),
    ],
)
def test_data_sets(dataset: dict[str, Any], source: dict[str, Any], mapping: dict[str, str] | None) -> None:
    data = accepted(converted(MINIMAL, datasets=[dataset]))["data_config"]

    assert data["sources"] == [source]
    assert data.get("preprocess", {}).get("field_mapping") == mapping


def test_alpaca_says_that_the_column_input_is_left_out() -> None:
    found = converted(MINIMAL, datasets=[{"path": "/srv/data/a.jsonl", "type": "alpaca"}])

    assert "join instruction and input" in reasons(found)["datasets[0].type"]


def test_other_columns_of_a_second_data_set_are_named() -> None:
    found = converted(
        MINIMAL,
        datasets=[{"path": "/srv/a.jsonl", "type": "chat_template"}, {"path": "/srv/b.jsonl", "type": "alpaca"}],
    )

    assert "one field_mapping holds for all sources" in reasons(found)["datasets[1]"]


def test_validation_data_and_steps() -> None:
    found = converted(
        MINIMAL,
        test_datasets=[{"path": "/srv/data/test.jsonl", "type": "chat_template", "split": "test"}],
        eval_steps=50,
        save_steps=100,
        save_total_limit=2,
        early_stopping_patience=3,
    )

    document = accepted(found)

    assert document["data_config"]["sources"][1] == {"path": "/srv/data/test.jsonl", "split": "validation"}
    assert document["training_config"]["evaluation"] == {"strategy": "steps", "steps": 50}
    assert document["training_config"]["hyperparameters"]["early_stopping_patience"] == "3"
    assert document["output_config"]["checkpoint"] == {"save_steps": 100, "save_total_limit": 2}


def test_defaults_are_those_of_axolotl() -> None:
    document = accepted(converted(MINIMAL))

    assert document["data_config"]["max_seq_length"] == 512
    hyperparameters = document["training_config"]["hyperparameters"]
    assert (hyperparameters["num_train_epochs"], hyperparameters["lr_scheduler_type"]) == ("1", "cosine")
    assert document["training_config"]["base_model"]["dtype"] == "bfloat16"


def test_total_batch_is_divided_by_devices() -> None:
    text = MINIMAL.replace("gradient_accumulation_steps: 1", "batch_size: 64")

    assert accepted(converted(text, gpus=4))["data_config"]["gradient_accumulation_steps"] == 8


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("zero1.json", {"zero_stage": "1"}),
        ("zero2.json", {"zero_stage": "2"}),
        ("zero3_bf16.json", {"zero_stage": "3"}),
        ("zero3_bf16_cpuoffload_all.json", {"zero_stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"}),
    ],
)
def test_deepspeed_by_the_name_of_its_file(name: str, config: dict[str, str]) -> None:
    found = converted(MINIMAL, gpus=8, deepspeed=f"deepspeed_configs/{name}")

    assert accepted(found)["training_config"]["framework"] == {"type": "DEEPSPEED", "config": config}
    assert "judged by its name" in reasons(found)["deepspeed"]


def test_deepspeed_by_what_its_file_says(tmp_path: Path) -> None:
    says = {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}}
    }
    (tmp_path / "mine.json").write_text(json.dumps(says))

    found = converted(MINIMAL, tmp_path, gpus=8, deepspeed="mine.json")

    config = {"zero_stage": "3", "offload_optimizer": "cpu"}
    assert accepted(found)["training_config"]["framework"] == {"type": "DEEPSPEED", "config": config}
    assert "deepspeed" not in reasons(found)


def test_fsdp() -> None:
    found = converted(
        MINIMAL,
        gpus=8,
        fsdp=["full_shard", "auto_wrap"],
        fsdp_config={"fsdp_offload_params": True, "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer"},
    )

    assert accepted(found)["training_config"]["framework"] == {"type": "FSDP", "config": {"cpu_offload": "true"}}


def test_quantized_weights_are_not_divided() -> None:
    found = converted(QLORA, gpus=2, fsdp=["full_shard", "auto_wrap"], fsdp_config={"fsdp_offload_params": True})

    assert accepted(found)["training_config"]["framework"] == {"type": "DEEPSPEED", "config": {"zero_stage": "2"}}
    assert "can't be divided" in reasons(found)["fsdp"]


def test_dpo_with_an_adapter() -> None:
    found = converted(
        MINIMAL,
        rl="dpo",
        rl_beta=0.05,
        adapter="lora",
        lora_r=8,
        lora_alpha=16,
        lora_target_modules=["q_proj", "v_proj"],
        datasets=[{"path": "/srv/data/p.jsonl", "type": "chat_template.argilla", "split": "train"}],
    )

    document = accepted(found)

    assert document["training_config"]["training_type"] == "DPO"
    hyperparameters = document["training_config"]["hyperparameters"]
    assert (hyperparameters["use_lora"], hyperparameters["beta"]) == ("true", "0.05")
    assert hyperparameters["lora_target_modules"] == "q_proj,v_proj"
    mapping = {"prompt": "instruction", "chosen": "chosen_response", "rejected": "rejected_response"}
    assert document["data_config"]["preprocess"]["field_mapping"] == mapping


def test_grpo() -> None:
    found = converted(
        MINIMAL,
        rl="grpo",
        micro_batch_size=8,
        trl={"num_generations": 8, "max_completion_length": 128, "reward_funcs": ["rewards.mine"], "use_vllm": True},
        datasets=[{"path": "/srv/data/q.jsonl", "type": "rewards.transform"}],
        sequence_len=1024,
    )

    document = accepted(found)

    hyperparameters = document["training_config"]["hyperparameters"]
    assert (document["training_config"]["training_type"], hyperparameters["algorithm"]) == ("RLHF", "grpo")
    assert hyperparameters["max_completion_length"] == "128"
    assert {"trl.reward_funcs", "trl.use_vllm"} < reasons(found).keys()


def test_continued_pretraining_is_streamed() -> None:
    found = converted(
        MINIMAL.replace("datasets", "pretraining_dataset").replace(", type: chat_template", ", type: pretrain"),
        max_steps=1000,
        sample_packing=True,
    )

    document = accepted(found)

    assert document["training_config"]["training_type"] == "CONTINUED_PRETRAIN"
    assert document["data_config"]["streaming"] is True
    assert "sample_packing" in reasons(found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rl": "orpo"}, "rl: orpo has no training type"),
        ({"adapter": "llama-adapter"}, "adapter: llama-adapter has no training type"),
        ({"base_model": None}, "base_model: is missing"),
        ({"datasets": []}, "datasets: names no data"),
    ],
)
def test_a_training_that_no_type_is_gets_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotImported, match=message):
        converted(MINIMAL, **changes)


def test_no_known_key_is_dropped_without_a_word() -> None:
    for name in [name.replace("*", "x") for name in REASONS]:
        changes: dict[str, Any] = {"val_set_size": 0.1, name: "something"}

        found = reasons(converted(MINIMAL, **changes))

        assert "unknown" not in found.get(name, "unknown"), name
