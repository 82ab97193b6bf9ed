"""FSDP's part in a training with transformers' Trainer."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerBase

from workers.run_context import RunContext
from workers.trainers.distributed import StepBoundary
from workers.trainers.fsdp.saving import FsdpSaving
from workers.trainers.fsdp.sharding import sharded_arguments
from workers.trainers.hf_trainer.divisions import Replicas


class Sharded(Replicas):
    """Every rank has a part of the model and of the optimizer's state."""

    def arguments(self, context: RunContext) -> dict[str, Any]:
        return sharded_arguments(context.spec)

    def saving(
        self, context: RunContext, boundary: StepBoundary, read: Callable[[PreTrainedTokenizerBase], Any]
    ) -> FsdpSaving:
        return FsdpSaving(context, boundary, read)
