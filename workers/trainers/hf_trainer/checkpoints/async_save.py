"""Asynchronous checkpoints: training pauses only while its state is copied.

The files have the layout of transformers' Trainer, which can resume from them.
"""

import errno
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, TRAINING_ARGS_NAME

from trainyard.protocol import checkpoint_manifest
from workers.rank.run_context import RunContext, Saved
from workers.trainers.distributed import StepBoundary
from workers.trainers.hf_trainer.checkpoints.best_weights import FILE as BEST_WEIGHTS
from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy, size_bytes


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """The contents of a checkpoint; a `copy` is independent of the running training."""

    copy: bool
    tensors: dict[str, Any]  # of the model, and the complete optimizer state
    state_files: dict[str, Any]  # file name → object for torch.save
    state: str


class HostCheckpointSaver:
    """One save at a time: every rank calls `take` to copy its state, then rank 0 calls `commit`.

    Without enough memory for a copy, the state itself is written and the training waits.
    """

    def __init__(self, context: RunContext, boundary: StepBoundary) -> None:
        self._context = context
        self._boundary = boundary
        self._copy = HostCopy()
        self._tokenizer = context.work_dir / "tokenizer"
        self._reserving: threading.Thread | None = None
        self._trainer: Trainer | None = None
        self._taken: _Snapshot | None = None

    def prepare(self, args: TrainingArguments) -> None:
        """Adjust the arguments before a trainer is built from them."""

    def restore(self, trainer: Trainer, checkpoint: str) -> None:
        """Load the weights of a finished training so that it can be evaluated and exported."""
        trainer._load_from_checkpoint(checkpoint)  # noqa: SLF001

    def load_weights(self, trainer: Trainer, checkpoint: Path) -> bool:  # noqa: ARG002
        """Load a checkpoint's weights into the trainer's model; False when transformers can do it itself."""
        return False

    def load_optimizer(self, trainer: Trainer, checkpoint: Path) -> bool:  # noqa: ARG002
        """Load a checkpoint's optimizer state; False when transformers can do it itself."""
        return False

    def whole_model(self, trainer: Trainer) -> PreTrainedModel | PeftModel | None:
        """The model to export, on rank 0; collective."""
        found: PreTrainedModel | PeftModel = trainer.accelerator.unwrap_model(trainer.model)
        return found

    def set_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Serialize the tokenizer once: it does not change, and writing a large vocabulary takes longer than copying
        the rest.
        """
        if self._context.rank == 0:
            tokenizer.save_pretrained(self._tokenizer)

    def reserve(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Allocate the copy buffers while the training runs; the optimizer must have made a step."""
        if self._context.rank == 0:
            tensors = {"model": _trainable_state(model), "optimizer": optimizer.state_dict()}
            if self._copy.fits(tensors):
                work = threading.Thread(target=self._copy.reserve, args=(tensors,), name="reserve", daemon=True)
                work.start()
                self._reserving = work

    def take(self, trainer: Trainer) -> None:
        """Copy the current state for a checkpoint; collective."""
        randoms = self._boundary.gather(random_state(trainer))
        if self._context.rank != 0:
            return
        self._context.rest()
        if self._reserving is not None:
            self._reserving.join()
        optimizer: Any = trainer.optimizer
        tensors = {"model": _trainable_state(_model(trainer)), "optimizer": optimizer.state_dict()}
        copies = self._copy.fits(tensors)
        self._trainer = trainer
        self._taken = _Snapshot(
            copy=copies,
            tensors=self._copy.take(tensors) if copies else tensors,
            state_files=state_files(trainer, randoms),
            state=state_text(trainer),
        )

    def commit(self, directory: Path, saved: Saved, best: BinaryIO | None) -> bool:
        """Write the taken state to `directory`, complete it and hand it over; `best` is the file with the best weights
        so far.

        Returns False when the training must wait for the write.
        """
        taken, trainer = self._taken, self._trainer
        if taken is None or trainer is None:
            raise RuntimeError("nothing was taken to be committed")
        self._taken = None
        self._context.commit_checkpoint(directory, saved, lambda: self._write(trainer, taken, directory, best))
        return taken.copy

    def _write(self, trainer: Trainer, taken: _Snapshot, directory: Path, best: BinaryIO | None) -> None:
        self._copy.wait()
        checkpoint_manifest.discard(directory)
        directory.mkdir(parents=True)
        with _detect_full_disk(directory, taken.tensors):
            self._write_files(trainer, taken, directory, best)

    def _write_tokenizer(self, directory: Path) -> None:
        shutil.copytree(self._tokenizer, directory, dirs_exist_ok=True)

    def _write_files(self, trainer: Trainer, taken: _Snapshot, directory: Path, best: BinaryIO | None) -> None:
        _write_model(_model(trainer), taken.tensors["model"], directory)
        self._write_tokenizer(directory)
        torch.save(taken.tensors["optimizer"], directory / OPTIMIZER_NAME)
        for name, value in taken.state_files.items():
            torch.save(value, directory / name)
        (directory / TRAINER_STATE_NAME).write_text(taken.state, encoding="utf-8")
        if best is not None:
            with best, (directory / BEST_WEIGHTS).open("wb") as file:
                shutil.copyfileobj(best, file)


@contextmanager
def _detect_full_disk(directory: Path, tensors: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # torch reports a full disk only as an unexpected file length.
        if shutil.disk_usage(directory).free < size_bytes(tensors):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error
        raise


def _model(trainer: Trainer) -> PreTrainedModel | PeftModel:
    return cast("PreTrainedModel | PeftModel", trainer.model)


def _write_model(model: PreTrainedModel | PeftModel, changing: dict[str, torch.Tensor], directory: Path) -> None:
    # Frozen weights are read in place.
    weights = {name: changing.get(name, tensor) for name, tensor in model.state_dict().items()}
    model.save_pretrained(str(directory), state_dict=weights)


def _trainable_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The model state that training changes: everything except frozen parameters and their quantization state."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if not _belongs_to(name, frozen)}


def _belongs_to(name: str, frozen: set[str]) -> bool:
    """Whether the name is a frozen parameter or a part of one, such as `….weight.absmax`."""
    while name and name not in frozen:
        name = name.rpartition(".")[0]
    return bool(name)


def state_files(trainer: Trainer, randoms: list[dict[str, Any]]) -> dict[str, Any]:
    """State that is cheap to copy, by file name."""
    names = ["rng_state.pth"] if len(randoms) == 1 else [f"rng_state_{rank}.pth" for rank in range(len(randoms))]
    scheduler: Any = trainer.lr_scheduler
    found: dict[str, Any] = dict(zip(names, randoms, strict=True))
    ours: Any = trainer
    found |= ours.own_files()
    found[TRAINING_ARGS_NAME] = trainer.args
    found[SCHEDULER_NAME] = deepcopy(scheduler.state_dict())
    if (scaler := trainer.accelerator.scaler) is not None:
        found[SCALER_NAME] = scaler.state_dict()
    return found


def shard_with_optimizer(trainer: Trainer, checkpoint: str) -> None:
    """Shard the model together with its optimizer, which evaluation requires."""
    loop: Any = trainer
    loop._prepare_for_training(1, trainer.get_train_dataloader(), checkpoint)  # noqa: SLF001


def random_state(trainer: Trainer) -> dict[str, Any]:
    """The random state to store: the present one, unless the trainer has kept that of an earlier moment."""
    ours: Any = trainer
    kept: dict[str, Any] | None = ours.kept_random_state
    return present_random_state(trainer) if kept is None else kept


def present_random_state(trainer: Trainer) -> dict[str, Any]:
    """The random state in the form that transformers stores."""
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002  (transformers' own, which libraries draw from)
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        several = trainer.args.world_size > 1
        found["cuda"] = torch.cuda.get_rng_state_all() if several else torch.cuda.get_rng_state()
    return found


def state_text(trainer: Trainer) -> str:
    document = asdict(trainer.state)
    # transformers updates it only now, too.
    document["stateful_callbacks"]["TrainerControl"] = trainer.control.state()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
