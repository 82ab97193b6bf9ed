"""Checkpoints in torch's distributed format: each rank writes its shard, and any number of ranks can resume."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from peft import PeftModel
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from trainyard.protocol import checkpoint_manifest
from workers.rank.run_context import RunContext, Saved
from workers.trainers.checkpoint_shards import gather_files
from workers.trainers.distributed import TIMEOUT, StepBoundary, wait_for_all
from workers.trainers.fsdp.sharding import enter_sharding
from workers.trainers.fsdp.whole_weights import SHARDS
from workers.trainers.hf_trainer.checkpoints.async_save import (
    HostCheckpointSaver,
    random_state,
    shard_with_optimizer,
    state_files,
    state_text,
)
from workers.trainers.hf_trainer.checkpoints.description import Description, description, write_description
from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy
from workers.trainers.rollouts.weights import trained

# Frozen parameters are the base model's.
_TRAINED = StateDictOptions(ignore_frozen_params=True, strict=False)
_WRAPPER = "_checkpoint_wrapped_module."
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
_WHOLE_TRAINED = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)


class FsdpCheckpointSaver(HostCheckpointSaver):
    """Training pauses while each rank copies its shard to host memory; threads of the ranks write it.

    The threads use their own process group, because their collectives would interleave with the training's.
    """

    def __init__(
        self,
        context: RunContext,
        boundary: StepBoundary,
        read: Callable[[PreTrainedTokenizerBase], PreTrainedModel | PeftModel],
    ) -> None:
        super().__init__(context, boundary)
        self._read_model = read
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT) if dist.is_initialized() else None
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="finish")
        self._tokens: PreTrainedTokenizerBase | None = None
        self._memory = HostCopy()
        self._written: Future[None] | None = None
        self._copied = False
        self._state_files: dict[str, Any] = {}
        self._text = ""
        self._description: Sequence[Description] = ()

    def prepare(self, args: TrainingArguments) -> None:
        enter_sharding(args)

    def set_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().set_tokenizer(tokenizer)
        self._tokens = tokenizer

    def reserve(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Each checkpoint is copied into newly allocated memory."""

    def take(self, trainer: Trainer) -> None:
        randoms = self._boundary.gather(random_state(trainer))
        directory = Path(str(trainer.args.output_dir)) / f"checkpoint-{trainer.state.global_step}"
        if self._written is not None:
            # The first rank, which hands the checkpoint over, reports a failure.
            wait([self._written])
        if self._context.rank == 0:
            self._context.rest()
            checkpoint_manifest.discard(directory)
            directory.mkdir(parents=True)
            self._state_files, self._text = state_files(trainer, randoms), state_text(trainer)
            self._description = self._description or description(_model(trainer))
        wait_for_all()
        state = {"model": _weights(trainer), "optimizer": _moments(trainer)}
        # If one rank lacks memory for a copy, all ranks wait until the state itself is written.
        self._copied = not self._boundary.any_rank(not self._memory.fits(_local(state)))
        to: dict[str, Any] = {
            "checkpoint_id": directory / SHARDS,
            "process_group": self._group,
            "no_dist": self._group is None,
        }
        future: Any = async_save(state, **to) if self._copied else None
        written = future.result if self._copied else partial(save, state, **to)
        self._written = self._finisher.submit(self._finish, written, directory)
        if not self._copied:
            wait([self._written])

    def commit(self, directory: Path, saved: Saved, best: BinaryIO | None) -> bool:  # noqa: ARG002
        """As `stop_and_save.CheckpointSaver`; best weights are not stored separately."""
        written, files, text = self._written, self._state_files, self._text
        if written is None:
            raise RuntimeError("nothing was taken to be committed")

        def write() -> None:
            written.result()
            self._write_tokenizer(directory)
            write_description(self._description, directory)
            for name, value in files.items():
                torch.save(value, directory / name)
            (directory / TRAINER_STATE_NAME).write_text(text, encoding="utf-8")

        self._context.commit_checkpoint(directory, saved, write)
        return self._copied

    def restore(self, trainer: Trainer, checkpoint: str) -> None:
        if trainer.args.world_size == 1:
            super().restore(trainer, checkpoint)
        else:
            shard_with_optimizer(trainer, checkpoint)

    def load_weights(self, trainer: Trainer, checkpoint: Path) -> bool:
        found = {"model": _weights(trainer)}
        self._read(found, checkpoint)
        set_model_state_dict(_model(trainer), found["model"], options=_TRAINED)
        return True

    def load_optimizer(self, trainer: Trainer, checkpoint: Path) -> bool:
        found = {"optimizer": _moments(trainer)}
        self._read(found, checkpoint)
        set_optimizer_state_dict(_model(trainer), _optimizer(trainer), found["optimizer"], options=_TRAINED)
        return True

    def whole_model(self, trainer: Trainer) -> PreTrainedModel | PeftModel | None:
        """A newly loaded model with all weights gathered in the memory of the first rank's host."""
        if trainer.args.world_size == 1 or self._tokens is None:
            return super().whole_model(trainer)
        weights = get_model_state_dict(_model(trainer), options=_WHOLE)
        if self._context.rank != 0:
            return None
        model = self._read_model(self._tokens)
        model.load_state_dict(weights)
        return model

    def _read(self, state: dict[str, Any], checkpoint: Path) -> None:
        load(state, checkpoint_id=checkpoint / SHARDS, process_group=self._group, no_dist=self._group is None)

    def _finish(self, written: Callable[[], object], directory: Path) -> None:
        """Wait until every rank has written. Raises the original error of a rank that failed."""
        try:
            written()
        except CheckpointException as error:
            # Not an Exception: callers that tolerate a failed checkpoint would not catch it or see its cause.
            cause, _ = next(iter(error.failures.values()))
            raise cause from error
        if self._group is not None:
            own = (directory / SHARDS).glob(f"__{self._context.rank}_*")
            gather_files(directory, own, None, self._group)


def gathered_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """As `parallelism.WeightGathering`: one parameter after the other passes through the devices."""
    found: dict[str, Any] = get_model_state_dict(model, options=_WHOLE_TRAINED)
    # Activation checkpointing wraps layers, whose names the state leaves out; tied weights it has twice.
    names = (name.replace(_WRAPPER, "") for name in trained(model))
    return {name: found[name] for name in names if name in found}


def _local(state: object) -> object:
    """The part of the state on this rank."""
    if isinstance(state, Mapping):
        return {name: _local(value) for name, value in state.items()}
    return state.to_local() if isinstance(state, DTensor) else state


def _model(trainer: Trainer) -> PreTrainedModel | PeftModel:
    found: PreTrainedModel | PeftModel = trainer.accelerator.unwrap_model(trainer.model)
    return found


def _optimizer(trainer: Trainer) -> torch.optim.Optimizer:
    wrapped: Any = trainer.optimizer
    found: torch.optim.Optimizer = getattr(wrapped, "optimizer", wrapped)
    return found


def _weights(trainer: Trainer) -> dict[str, Any]:
    return dict(get_model_state_dict(_model(trainer), options=_TRAINED))


def _moments(trainer: Trainer) -> dict[str, Any]:
    return dict(get_optimizer_state_dict(_model(trainer), _optimizer(trainer), options=_TRAINED))
