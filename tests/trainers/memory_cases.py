"""Small trainings whose memory is tracked and estimated: models of several types, methods and batches."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain.memory.estimate import MemoryEstimate, estimate
from app.domain.spec.hyperparameters.parsing import parse
from app.domain.spec.model import JobDocument

_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 2048,
    "max_position_embeddings": 1024,
}
# GPT-2's MLP has four times the hidden size, whatever else a configuration says.
_GPT2 = {"n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 1024, "intermediate_size": 1024}
_RECORDS = 16


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run of full-length records; `config` changes the model's configuration."""

    training_type: str = "SFT"
    model_type: str = "llama"
    config: Mapping[str, Any] = field(default_factory=dict)
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    base_model: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 4
    length: int = 96
    accumulation: int = 1

    def document(self) -> JobDocument:
        return JobDocument.from_json(
            {
                "name": "tracked",
                "training_config": {
                    "training_type": self.training_type,
                    "framework": {"type": "HF_TRAINER"},
                    "base_model": {"model_id": "small", **self.base_model},
                    "hyperparameters": {"max_steps": "2", **self.hyperparameters},
                },
                "data_config": self._data(),
                "resource_config": {"device_type": "cpu"},
            }
        )

    def plan(self, directory: Path, demo: Path) -> dict[str, Any]:
        """As `in_process.plan_of`, with a model and records of its own."""
        directory.mkdir(parents=True)
        values = self.document().training_config.hyperparameters
        spec = {
            "run_dir": str(directory / "run"),
            "framework": "HF_TRAINER",
            "training_type": self.training_type,
            "training_config": {"base_model": dict(self.base_model)},
            "output_config": {"checkpoint": {"save_strategy": "no"}},
            "hyperparameters": parse("HF_TRAINER", self.training_type, values),
            "model_path": str(self._model(directory / "model", demo / "model")),
            "data_paths": [str(self._records(directory / "records.jsonl"))],
            "device_type": "cpu",
            "world_size": 1,
            "threads_per_rank": 1,
            "data_config": self._data(),
        }
        return {"spec": spec}

    def estimated(self, directory: Path) -> MemoryEstimate:
        """The estimate by the configuration that transformers has written."""
        config = json.loads((directory / "model" / "config.json").read_text())
        return estimate(self.document(), config, device_count=1)

    def _data(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "max_seq_length": self.length,
            "gradient_accumulation_steps": self.accumulation,
            "sources": [{"path": "records.jsonl", "split": "train"}],
            "preprocess": {"padding": "max_length"},
        }

    def _model(self, directory: Path, tokenizer: Path) -> Path:
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM  # noqa: PLC0415  imported by the ranks alone

        shutil.copytree(tokenizer, directory, ignore=shutil.ignore_patterns("*.safetensors"))
        tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        config = CONFIG_MAPPING[self.model_type](**{**_SIZES, **tokens, **self.config})
        AutoModelForCausalLM.from_config(config).save_pretrained(directory)
        return directory

    def _records(self, file: Path) -> Path:
        text = " ".join(f"word{number % 97} and so on" for number in range(600))
        record: dict[str, str] = {"text": text}
        if self.training_type == "DPO":
            record = {"prompt": "say something", "chosen": text, "rejected": text[5:]}
        if self.training_type == "RLHF":
            # 94 tokens: longer ones than the document allows are left out.
            record = {"prompt": " ".join(text.split()[: 13 * 4]), "answer": "nothing"}
        file.write_text((json.dumps(record) + "\n") * _RECORDS)
        return file


_GRPO = {
    "algorithm": "grpo",
    "reward": "exact",
    "num_generations": "2",
    "max_completion_length": "96",
    "beta": "0.04",  # with a reference
}
CASES = {
    "full": Case(),
    "longer, accumulated": Case(batch_size=1, length=256, accumulation=2, hyperparameters={"optim": "adamw_torch"}),
    "checkpointed": Case(batch_size=8, hyperparameters={"gradient_checkpointing": "true"}),
    "adafactor, tied": Case(batch_size=1, config={"tie_word_embeddings": True}, hyperparameters={"optim": "adafactor"}),
    "sgd": Case(training_type="CONTINUED_PRETRAIN", batch_size=2, hyperparameters={"optim": "sgd"}),
    "bfloat16": Case(base_model={"dtype": "bfloat16"}),
    "eager": Case(length=192, batch_size=2, base_model={"model_kwargs": {"attn_implementation": "eager"}}),
    "lora": Case(training_type="LORA"),
    "lora, checkpointed": Case(
        training_type="LORA", batch_size=8, hyperparameters={"gradient_checkpointing": "true", "lora_dropout": "0"}
    ),
    "qlora": Case(training_type="QLORA", hyperparameters={"lora_target_modules": "q_proj,v_proj"}),
    "dpo": Case(training_type="DPO", batch_size=2),
    "dpo, adapter": Case(training_type="DPO", batch_size=2, hyperparameters={"use_lora": "true"}),
    "grpo": Case(training_type="RLHF", length=192, hyperparameters=_GRPO),
    "grpo, adapter, accumulated": Case(
        training_type="RLHF", batch_size=2, length=192, accumulation=4, hyperparameters={**_GRPO, "use_lora": "true"}
    ),
    "label smoothing": Case(hyperparameters={"label_smoothing_factor": "0.1"}),
    "qwen3": Case(model_type="qwen3"),
    "gemma3": Case(model_type="gemma3_text"),
    "gemma2": Case(model_type="gemma2"),
    "phi3": Case(model_type="phi3"),
    "gpt2": Case(model_type="gpt2", config=_GPT2),
}
