"""How the ranks of a training with transformers' Trainer divide it among them: one line for each framework."""

import importlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.rank.run_context import RunContext
from workers.trainers.distributed import StepBoundary
from workers.trainers.hf_trainer.checkpoints.async_save import HostSaving

_DIVISIONS = {
    "HF_TRAINER": "workers.trainers.hf_trainer.loop.parallelism:Replicas",
    "FSDP": "workers.trainers.fsdp.parallelism:Sharded",
    "DEEPSPEED": "workers.trainers.deepspeed.division:Zero",
    # Its own loop divides; only the configuration is the same.
    "MEGATRON": "workers.trainers.hf_trainer.loop.parallelism:Replicas",
}


class Replicas:
    """Every rank has the whole model, and learns from its part of the records."""

    def arguments(self, context: RunContext) -> dict[str, Any]:
        """What trl's configuration says besides. Raises InvalidConfig."""
        spec = context.spec
        if spec.world_size == 1:
            return {}
        backend = "nccl" if spec.device_type == "cuda" else "gloo"
        # Every parameter that is trained gets a gradient, an adapter's too; looking for others costs each step.
        return {"ddp_backend": backend, "ddp_find_unused_parameters": False}

    def resumable(self, context: RunContext, checkpoint: str) -> str:  # noqa: ARG002
        """The directory to go on from: the checkpoint's own, or what was made of it for these ranks.

        Raises InvalidConfig.
        """
        return checkpoint

    def twin(self, model: PreTrainedModel, read: Callable[[], PreTrainedModel]) -> PreTrainedModel:  # noqa: ARG002
        """The same model once more, as it was read; `read` reads it again."""
        return deepcopy(model)

    def prepared(self, trainer: Any, model: PreTrainedModel) -> Any:
        """A model that only measures, as the trainer's ranks can use it."""
        return trainer.accelerator.prepare_model(model, evaluation_mode=True)

    def ready_to_complete(self, model: Any) -> None:
        """Before the ranks let `model` complete prompts, each its own."""

    def saving(
        self,
        context: RunContext,
        boundary: StepBoundary,
        read: Callable[[PreTrainedTokenizerBase], Any],  # noqa: ARG002  (a part can't be exported without the rest)
    ) -> HostSaving:
        """What writes and reads checkpoints; `read` gives the model as it is before the training."""
        return HostSaving(context, boundary)


def division_of(framework: str) -> Replicas:
    """Imports what the framework needs, and nothing of the others."""
    module, _, name = _DIVISIONS[framework].partition(":")
    found: Replicas = getattr(importlib.import_module(module), name)()
    return found
