"""Parallelism of a training with transformers' Trainer: one table entry per framework."""

import importlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

from workers.rank.run_context import RunContext, RunSpec
from workers.trainers.distributed import StepBoundary
from workers.trainers.hf_trainer.checkpoints.async_save import HostCheckpointSaver

_PARALLELISMS = {
    "HF_TRAINER": "workers.trainers.hf_trainer.loop.parallelism:DataParallel",
    "FSDP": "workers.trainers.fsdp.parallelism:FullyShardedParallel",
    "DEEPSPEED": "workers.trainers.deepspeed.parallelism:ZeroParallel",
    # Megatron's own loop shards the model; only the configuration is shared.
    "MEGATRON": "workers.trainers.hf_trainer.loop.parallelism:DataParallel",
}


@dataclass(frozen=True)
class WeightGathering:
    """How the weights of a model that is divided among ranks come together.

    ``gather``: collective; on the first rank the trained parameters by name, in their order, in the memory of its host;
    nothing on other ranks. ``digests``: as of `rollouts.weights.Weights`, on the first rank.
    """

    gather: Callable[[nn.Module], dict[str, torch.Tensor]]
    digests: dict[str, str]


class DataParallel:
    """Data parallelism: every rank has the full model and trains on its part of the records."""

    def arguments(self, context: RunContext) -> dict[str, Any]:
        """Additional arguments for trl's configuration. Raises InvalidConfig."""
        spec = context.spec
        if spec.world_size == 1:
            return {}
        backend = "nccl" if spec.device_type == "cuda" else "gloo"
        # Every trained parameter gets a gradient, an adapter's too; searching for unused ones costs time in every step.
        return {"ddp_backend": backend, "ddp_find_unused_parameters": False}

    def resumable(self, context: RunContext, checkpoint: str) -> str:  # noqa: ARG002
        """The directory to resume from: the checkpoint itself, or a conversion of it for the current number of ranks.

        Raises InvalidConfig.
        """
        return checkpoint

    def reference_copy(self, model: PreTrainedModel, read: Callable[[], PreTrainedModel]) -> PreTrainedModel:  # noqa: ARG002
        """A second, unmodified copy of the model; `read` loads it again."""
        return deepcopy(model)

    def prepared(self, trainer: Trainer, model: PreTrainedModel) -> nn.Module:
        """Wrap an evaluation-only model for use by the trainer's ranks."""
        found: nn.Module = trainer.accelerator.prepare_model(model, evaluation_mode=True)
        return found

    def prepare_for_generation(self, model: nn.Module) -> None:
        """Prepare `model` before each rank generates its own completions."""

    def division(self, spec: RunSpec, model: nn.Module) -> WeightGathering | None:  # noqa: ARG002
        """Of a built model that has not been trained; None: every rank has all weights. Collective."""
        return None

    def saving(
        self,
        context: RunContext,
        boundary: StepBoundary,
        read: Callable[[PreTrainedTokenizerBase], PreTrainedModel | PeftModel],  # noqa: ARG002  (a part can't be exported without the rest)
    ) -> HostCheckpointSaver:
        """The checkpoint saver; `read` loads the model as it was before the training."""
        return HostCheckpointSaver(context, boundary)


def parallelism_of(framework: str) -> DataParallel:
    """Import what this framework needs, and nothing of the others."""
    module, _, name = _PARALLELISMS[framework].partition(":")
    found: DataParallel = getattr(importlib.import_module(module), name)()
    return found
