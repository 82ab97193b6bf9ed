"""A training script without Trainyard: trl's SFTTrainer or DPOTrainer, and nothing else.

    python -m benchmarks.plain_trl SPEC.json

SPEC.json: {"method": "SFT" or "DPO", "model", "data", "out": paths, "threads": int, "config": what SFTConfig or
DPOConfig takes}. It prints when each step was
logged, in seconds, and the last loss, as one line of JSON: the only thing in it that serves the measurement.
"""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

METHODS: dict[str, tuple[Any, Any]] = {"SFT": (SFTTrainer, SFTConfig), "DPO": (DPOTrainer, DPOConfig)}


class Clock(TrainerCallback):
    """Notes the time at the place where Trainyard's own trainers report a step: when it is logged."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, float]] = []
        self.loss = 0.0

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "loss" in logs:
            self.logged.append((state.global_step, time.time()))
            self.loss = float(logs["loss"])


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(spec["threads"])
    clock = Clock()
    trainer_class, config_class = METHODS[spec["method"]]
    trainer = trainer_class(
        model=AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32),
        args=config_class(output_dir=spec["out"], **spec["config"]),
        train_dataset=load_dataset("json", data_files=spec["data"], split="train"),
        processing_class=AutoTokenizer.from_pretrained(spec["model"]),
        callbacks=[clock],
    )
    trainer.train()
    trainer.save_model(spec["out"] + "/final")
    print(json.dumps({"logged": clock.logged, "loss": clock.loss}))


if __name__ == "__main__":
    main()
