"""DeepSpeed's parallelism for a training with transformers' Trainer."""

from collections.abc import Callable
from typing import Any

from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl.models.utils import prepare_deepspeed

from workers.rank.run_context import RunContext, RunSpec
from workers.trainers.deepspeed import universal_checkpoint
from workers.trainers.deepspeed.configuration import configuration, enter
from workers.trainers.distributed import StepBoundary
from workers.trainers.hf_trainer.checkpoints.async_save import HostCheckpointSaver
from workers.trainers.hf_trainer.loop.parallelism import DataParallel, WeightGathering
from workers.trainers.rollouts.model import dtype_of_rollouts


class ZeroParallel(DataParallel):
    """Shards the optimizer state, and what else the job requests, across ranks."""

    def arguments(self, context: RunContext) -> dict[str, Any]:
        return {"deepspeed": configuration(context.spec, universal=universal_checkpoint.is_needed(context))}

    def resumable(self, context: RunContext, checkpoint: str) -> str:
        return universal_checkpoint.resumable(context, checkpoint)

    def reference_copy(self, model: PreTrainedModel, read: Callable[[], PreTrainedModel]) -> PreTrainedModel:
        # A sharded model cannot be copied.
        divided = is_deepspeed_zero3_enabled()  # type: ignore[no-untyped-call]
        return read() if divided else super().reference_copy(model, read)

    def prepared(self, trainer: Trainer, model: PreTrainedModel) -> nn.Module:
        found: nn.Module = prepare_deepspeed(model, trainer.accelerator)
        return found

    def division(self, spec: RunSpec, model: nn.Module) -> WeightGathering | None:
        """Below stage 3 every rank has all parameters; in it they are divided while they are loaded."""
        if not is_deepspeed_zero3_enabled():  # type: ignore[no-untyped-call]
            return None
        from workers.trainers.deepspeed.gathering import gathered_digest, gathered_weights  # noqa: PLC0415  (as below)

        dtype = dtype_of_rollouts(spec)
        return WeightGathering(gathered_weights, {dtype: gathered_digest(model, dtype)})

    def saving(
        self,
        context: RunContext,
        boundary: StepBoundary,
        read: Callable[[PreTrainedTokenizerBase], PreTrainedModel | PeftModel],
    ) -> HostCheckpointSaver:
        enter(context.spec.device_type)
        from workers.trainers.deepspeed.saving import ZeroCheckpointSaver  # noqa: PLC0415  (DeepSpeed must know the device before)

        return ZeroCheckpointSaver(context, boundary, read)
