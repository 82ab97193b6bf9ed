"""FSDP's parallelism for a training with transformers' Trainer."""

from collections.abc import Callable
from typing import Any

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.models.utils import prepare_fsdp

from workers.rank.run_context import RunContext
from workers.trainers.distributed import StepBoundary
from workers.trainers.fsdp.saving import FsdpCheckpointSaver
from workers.trainers.fsdp.sharding import sharded_arguments
from workers.trainers.hf_trainer.loop.parallelism import DataParallel


class FullyShardedParallel(DataParallel):
    """Shards the model and the optimizer state across ranks."""

    def arguments(self, context: RunContext) -> dict[str, Any]:
        return sharded_arguments(context.spec)

    def prepared(self, trainer: Any, model: PreTrainedModel) -> Any:
        if trainer.args.world_size == 1:
            return super().prepared(trainer, model)
        return prepare_fsdp(model, trainer.accelerator)

    def prepare_for_generation(self, model: Any) -> None:
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        # transformers sets it where it shards a model itself: a rank whose completions have ended continues as long as
        # the others, which would otherwise wait for its shard of the next layer.
        base._is_fsdp_managed_module = True  # noqa: SLF001

    def saving(
        self, context: RunContext, boundary: StepBoundary, read: Callable[[PreTrainedTokenizerBase], Any]
    ) -> FsdpCheckpointSaver:
        return FsdpCheckpointSaver(context, boundary, read)
