"""FSDP's parallelism for a training with transformers' Trainer."""

from collections.abc import Callable
from typing import Any, cast

import torch.distributed as dist
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from trl.models.utils import prepare_fsdp

from workers.rank.run_context import RunContext, RunSpec
from workers.trainers.distributed import StepBoundary
from workers.trainers.fsdp.saving import FsdpCheckpointSaver, gathered_weights
from workers.trainers.fsdp.sharding import sharded_arguments
from workers.trainers.hf_trainer.loop.parallelism import DataParallel, WeightGathering
from workers.trainers.rollouts.model import dtype_of_rollouts
from workers.trainers.rollouts.weights import frozen_digest


class FullyShardedParallel(DataParallel):
    """Shards the model and the optimizer state across ranks."""

    def arguments(self, context: RunContext) -> dict[str, Any]:
        return sharded_arguments(context.spec)

    def prepared(self, trainer: Trainer, model: PreTrainedModel) -> nn.Module:
        if trainer.args.world_size == 1:
            return super().prepared(trainer, model)
        return cast("nn.Module", prepare_fsdp(model, trainer.accelerator))

    def prepare_for_generation(self, model: nn.Module) -> None:
        base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
        # transformers sets it where it shards a model itself: a rank whose completions have ended continues as long as
        # the others, which would otherwise wait for its shard of the next layer.
        base._is_fsdp_managed_module = True  # noqa: SLF001

    def division(self, spec: RunSpec, model: nn.Module) -> WeightGathering | None:
        """The model is divided later, when the training begins."""
        if spec.world_size == 1:
            return None
        dtype = dtype_of_rollouts(spec)
        return WeightGathering(gathered_weights, {dtype: frozen_digest(model, dtype)} if dist.get_rank() == 0 else {})

    def saving(
        self,
        context: RunContext,
        boundary: StepBoundary,
        read: Callable[[PreTrainedTokenizerBase], PreTrainedModel | PeftModel],
    ) -> FsdpCheckpointSaver:
        return FsdpCheckpointSaver(context, boundary, read)
