"""Keeps a copy of the weights with the best evaluation score, so that they can be exported."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from app.domain.lifecycle.checkpoints import best_rule
from workers.rank.run_context import RunContext, method_of
from workers.rank.spec_sections import output_config
from workers.trainers.distributed import wait_for_all
from workers.trainers.hf_trainer.monitoring.reporting import Reporting, score_of

FILE = "best_weights.safetensors"


class BestWeights(TrainerCallback):
    """Active only with load_best_model_at_end; the copy is then stored in every checkpoint.

    Added after `Reporting`, whose latest metrics it compares, and before `StopAndSaveCallback`, which writes
    checkpoints. Only trained parameters are copied; the others are the base model's.
    """

    def __init__(self, context: RunContext, reporting: Reporting) -> None:
        self._wanted = bool(context.spec.hyperparameters.get("load_best_model_at_end"))
        self._metric, self._greater_is_better = best_rule(
            output_config(context.spec).checkpoint, method_of(context.spec)
        )
        self._reporting = reporting
        self._leads = context.rank == 0
        self._kept = context.work_dir / FILE
        self._step = -1
        self._score: float | None = None
        self._metrics: dict[str, float] = {}
        manifest = context.resume_manifest()
        # A new job that resumes this checkpoint may evaluate other data or another metric.
        if self._wanted and manifest is not None and context.taken_over() is None:
            self._restore(manifest.data_position.get("best") or {}, Path(context.spec.resume_checkpoint))

    def to_document(self) -> dict[str, Any]:
        """What the checkpoint's manifest says about the best weights stored beside its own; {} for none."""
        return {"step": self._step, "score": self._score, "metrics": self._metrics} if self._step >= 0 else {}

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._wanted or model is None or "eval_loss" not in (metrics or {}):
            return
        latest = self._reporting.latest
        found = score_of(latest, self._metric, greater_is_better=self._greater_is_better)
        if found is None or (self._score is not None and found <= self._score):
            return
        self._step, self._score = state.global_step, found
        self._metrics = {name: value for name, value in latest.items() if name.startswith("eval_")}
        if self._leads:
            self._keep(model)

    def opened(self) -> BinaryIO | None:
        """The file for a checkpoint taken now; stays valid when better weights are found before the checkpoint is
        written.
        """
        # A better copy replaces the name, not the open file.
        return self._kept.open("rb") if self._step >= 0 else None

    def take(self, model: nn.Module) -> None:
        """Load the best weights into the model, on every rank, and reset the metrics to theirs. Does nothing if there
        are none.
        """
        if self._step < 0:
            return
        wait_for_all()
        model.load_state_dict(load_file(self._kept), strict=False)
        self._reporting.latest |= self._metrics
        if self._leads:
            text = f"exporting the weights after step {self._step}, the best by {self._metric}"
            print(text, flush=True)  # noqa: T201  (the job's log is stdout)

    def _keep(self, model: nn.Module) -> None:
        # Tied weights appear under one name here.
        trained = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        partial = self._kept.with_suffix(".partial")
        save_file({name: _copied(tensor) for name, tensor in trained.items()}, partial)
        partial.replace(self._kept)

    def _restore(self, document: Mapping[str, Any], checkpoint: Path) -> None:
        if not document:
            return
        self._step, self._score = int(document["step"]), float(document["score"])
        self._metrics = {name: float(value) for name, value in document["metrics"].items()}
        if self._leads:
            # The checkpoint may be pruned before the training ends.
            shutil.copyfile(checkpoint / FILE, self._kept)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()
