"""Checkpoints that are written while the training goes on: it stands still only for a copy of its state.

The files are those of transformers' own Trainer, which can go on from them.
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
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.trainer import (
    OPTIMIZER_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_NAME,
)

from trainyard.protocol import manifest
from workers.rank.run_context import RunContext, Saved
from workers.trainers.distributed import StepBoundary
from workers.trainers.hf_trainer.checkpoints.best_weights import FILE as BEST_WEIGHTS
from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy, size_bytes


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """All that a checkpoint holds; nothing of it is changed by the training any more if it is a `copy`."""

    copy: bool
    tensors: dict[str, Any]  # of the model, and of the optimizer's whole state
    small: dict[str, Any]  # file → what torch.save writes into it
    state: str


class HostSaving:
    """One at a time: `take` a copy on every rank, then `commit` it on the first one.

    Where there is no memory for a copy, the state itself is written and the training waits for that.
    """

    def __init__(self, context: RunContext, boundary: StepBoundary) -> None:
        self._context = context
        self._boundary = boundary
        self._copy = HostCopy()
        self._tokenizer = context.work_dir / "tokenizer"
        self._reserving: threading.Thread | None = None
        self._trainer: Trainer | None = None
        self._taken: _Taken | None = None

    def prepare(self, args: TrainingArguments) -> None:
        """Before a trainer is made with these."""

    def restore(self, trainer: Trainer, checkpoint: str) -> None:
        """Weights of a training that makes no more steps, so that it can measure and be exported."""
        trainer._load_from_checkpoint(checkpoint)  # noqa: SLF001

    def load_weights(self, trainer: Trainer, checkpoint: Path) -> bool:  # noqa: ARG002
        """Give the trainer's model the weights of a checkpoint; False when transformers knows how."""
        return False

    def load_optimizer(self, trainer: Trainer, checkpoint: Path) -> bool:  # noqa: ARG002
        """The same of its optimizer."""
        return False

    def whole_model(self, trainer: Trainer) -> Any:
        """What is exported, on rank 0; every rank takes part."""
        return trainer.accelerator.unwrap_model(trainer.model)

    def keep_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """It does not change, and to write one of a large vocabulary takes longer than to copy the rest."""
        if self._context.rank == 0:
            tokenizer.save_pretrained(self._tokenizer)

    def reserve(self, model: nn.Module, optimizer: Any) -> None:
        """Make the memory for the copies while the training goes on; the optimizer must have made a step."""
        if self._context.rank == 0:
            tensors = {"model": _changing(model), "optimizer": optimizer.state_dict()}
            if self._copy.fits(tensors):
                work = threading.Thread(target=self._copy.reserve, args=(tensors,), name="reserve", daemon=True)
                work.start()
                self._reserving = work

    def take(self, trainer: Trainer) -> None:
        """Copy what a checkpoint of this moment holds; every rank takes part."""
        randoms = self._boundary.gather(random_state(trainer))
        if self._context.rank != 0:
            return
        self._context.rest()
        if self._reserving is not None:
            self._reserving.join()
        optimizer: Any = trainer.optimizer
        tensors = {"model": _changing(trainer.model), "optimizer": optimizer.state_dict()}
        copies = self._copy.fits(tensors)
        self._trainer = trainer
        self._taken = _Taken(
            copy=copies,
            tensors=self._copy.take(tensors) if copies else tensors,
            small=small(trainer, randoms),
            state=state_text(trainer),
        )

    def commit(self, directory: Path, saved: Saved, best: BinaryIO | None) -> bool:
        """Have what was taken written into `directory`, completed and handed over; `best`: the best weights so far.

        False when the training must rest until that is done.
        """
        taken, trainer = self._taken, self._trainer
        if taken is None or trainer is None:
            raise RuntimeError("nothing was taken to be committed")
        self._taken = None
        self._context.commit_checkpoint(directory, saved, lambda: self._write(trainer, taken, directory, best))
        return taken.copy

    def _write(self, trainer: Trainer, taken: _Taken, directory: Path, best: BinaryIO | None) -> None:
        self._copy.wait()
        manifest.discard(directory)
        directory.mkdir(parents=True)
        with _naming_full_disk(directory, taken.tensors):
            self._write_files(trainer, taken, directory, best)

    def _write_tokenizer(self, directory: Path) -> None:
        shutil.copytree(self._tokenizer, directory, dirs_exist_ok=True)

    def _write_files(self, trainer: Trainer, taken: _Taken, directory: Path, best: BinaryIO | None) -> None:
        _write_model(trainer.model, taken.tensors["model"], directory)
        self._write_tokenizer(directory)
        torch.save(taken.tensors["optimizer"], directory / OPTIMIZER_NAME)
        for name, value in taken.small.items():
            torch.save(value, directory / name)
        (directory / TRAINER_STATE_NAME).write_text(taken.state, encoding="utf-8")
        if best is not None:
            with best, (directory / BEST_WEIGHTS).open("wb") as file:
                shutil.copyfileobj(best, file)


@contextmanager
def _naming_full_disk(directory: Path, tensors: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # All that torch says of a full disk is that a file has not the length it should have.
        if shutil.disk_usage(directory).free < size_bytes(tensors):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error
        raise


def _write_model(model: Any, changing: dict[str, torch.Tensor], directory: Path) -> None:
    # What is frozen may be read from where it is.
    weights = {name: changing.get(name, tensor) for name, tensor in model.state_dict().items()}
    model.save_pretrained(directory, state_dict=weights)


def _changing(model: Any) -> dict[str, torch.Tensor]:
    """The part of a model's state that training changes: all but frozen parameters, and how those are quantized."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if not _belongs_to(name, frozen)}


def _belongs_to(name: str, frozen: set[str]) -> bool:
    """Whether it is one of them, or a part of one, as `….weight.absmax` is."""
    while name and name not in frozen:
        name = name.rpartition(".")[0]
    return bool(name)


def small(trainer: Trainer, randoms: list[dict[str, Any]]) -> dict[str, Any]:
    """What takes no time to copy, by the name of its file."""
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


def divided_as_at_a_start(trainer: Trainer, checkpoint: str) -> None:
    """Only a model that is divided together with its optimizer can measure."""
    loop: Any = trainer
    loop._prepare_for_training(1, trainer.get_train_dataloader(), checkpoint)  # noqa: SLF001


def random_state(trainer: Trainer) -> dict[str, Any]:
    """As transformers keeps it."""
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
    # transformers brings it up to date only now, too.
    document["stateful_callbacks"]["TrainerControl"] = trainer.control.state()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
