"""One training with checkpoints, by transformers or by Trainyard: `python -m benchmarks.checkpoint_saves SPEC.json`.

SPEC.json: {"side": "plain" or "trainyard", "framework", "ranks", "model", "data", "out": paths, "threads", "steps",
"save_steps", "batch_size", "tokens", "device"}. It is one rank of as many, which find each other by the variables that
torchrun sets. The first prints one line of JSON: how long the loop stood still after each step, how long each step was,
how long each checkpoint was written in the background, and the most memory the process had.

Either side divides a model among ranks in the same way; what is compared is how that is saved.
"""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from app.domain.spec.hyperparameters.parsing import parse
from trainyard._hooks.local_session import LocalSession
from trainyard.protocol.session import Identity, Saved
from workers.rank.run_context import RunContext, RunSpec
from workers.trainers import distributed
from workers.trainers.data.datasets import Splits
from workers.trainers.deepspeed.configuration import enter
from workers.trainers.fsdp.sharding import enter_sharding
from workers.trainers.hf_trainer.loop.parallelism import parallelism_of
from workers.trainers.hf_trainer.loop.trl_trainer import TrlTrainer
from workers.trainers.hf_trainer.methods.sft import SupervisedTrainer

RATE = 1e-4


class Clock(TrainerCallback):
    """The last of the callbacks. Between the end of a step and the beginning of the next the loop stands still."""

    def __init__(self) -> None:
        self.began: dict[int, float] = {}
        self.ended: dict[int, float] = {}

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.began[state.global_step + 1] = now()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.ended[state.global_step + 1] = now()

    def document(self) -> dict[str, Any]:
        steps = sorted(self.began)
        return {
            "stood_still": {step: self.began[step + 1] - self.ended[step] for step in steps[:-1]},
            "step_seconds": {step: self.began[step + 1] - self.began[step] for step in steps[:-1]},
            "max_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def now() -> float:
    """When the work given to a GPU is done, too: else the loop would seem to stand still later than it does."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class TimedSession(LocalSession):
    """Notes when each checkpoint was complete: written, hashed, synced and renamed."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self.completed: dict[int, float] = {}

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str:
        path = super().commit_checkpoint(tmp_dir, saved)
        self.completed[saved.step] = time.perf_counter()
        return path


class TimedTrainer(SupervisedTrainer):
    """The product's trainer with a clock at its side."""

    clock = Clock()

    def build(self, splits: Splits, tokenizer: PreTrainedTokenizerBase) -> TrlTrainer:
        trainer = super().build(splits, tokenizer)
        trainer.add_callback(self.clock)
        return trainer


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    run = run_of(spec)
    if run.framework != DEEPSPEED:
        sys.modules["deepspeed"] = None  # type: ignore[assignment]  # as in workers.trainers.main
    distributed.join(run)
    sides: dict[str, Callable[[dict[str, Any], RunContext, TimedSession], dict[str, Any]]] = {
        "plain": plain,
        "trainyard": trainyard,
    }
    session = TimedSession(Identity(run_dir=run.run_dir, rank=rank(), world_size=run.world_size))
    document = sides[spec["side"]](spec, RunContext(run, session), session)
    if rank() == 0:
        print(json.dumps(document))
    distributed.leave()
    sys.stdout.flush()
    os._exit(0)


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def run_of(spec: dict[str, Any]) -> RunSpec:
    values = {"max_steps": str(spec["steps"]), "learning_rate": str(RATE), "logging_steps": "1"}
    return RunSpec(
        run_dir=Path(spec["out"]),
        framework=spec["framework"],
        training_type="SFT",
        hyperparameters=parse(spec["framework"], "SFT", {**values, "gradient_checkpointing": "false"}),
        model_path=spec["model"],
        data_paths=(spec["data"],),
        data_config={"batch_size": spec["batch_size"], "max_seq_length": spec["tokens"]},
        output_config={"checkpoint": {"save_strategy": "steps", "save_steps": spec["save_steps"]}},
        world_size=spec["ranks"],
        threads_per_rank=spec["threads"],
        device_type=spec["device"],
    )


def plain(spec: dict[str, Any], context: RunContext, _: TimedSession) -> dict[str, Any]:
    clock = Clock()
    if spec["framework"] == DEEPSPEED:
        enter(spec["device"])
    args = SFTConfig(
        output_dir=spec["out"],
        max_steps=spec["steps"],
        save_steps=spec["save_steps"],
        save_total_limit=1,
        per_device_train_batch_size=spec["batch_size"],
        max_length=spec["tokens"],
        learning_rate=RATE,
        use_cpu=spec["device"] == "cpu",
        bf16=spec["device"] == "cuda",
        dataloader_pin_memory=False,
        logging_steps=1,
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
        **parallelism_of(spec["framework"]).arguments(context),
    )
    enter_sharding(args)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32),
        args=args,
        train_dataset=load_dataset("json", data_files=spec["data"], split="train"),
        processing_class=AutoTokenizer.from_pretrained(spec["model"]),
        callbacks=[clock],
    )
    trainer.train()
    return clock.document()


def trainyard(spec: dict[str, Any], context: RunContext, session: TimedSession) -> dict[str, Any]:
    TimedTrainer(context).run()
    clock = TimedTrainer.clock
    background = {
        step: done - clock.began[step + 1] for step, done in session.completed.items() if step < spec["steps"]
    }
    return {**clock.document(), "background_seconds": background}


if __name__ == "__main__":
    main()
