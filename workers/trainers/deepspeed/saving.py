"""Checkpoints in DeepSpeed's format, one file per rank's shard; threads write them while the training continues."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo, CheckpointEngine
from deepspeed.runtime.zero.partition_parameters import GatheredParameters
from peft import PeftModel
from torch import nn
from torch.serialization import MAP_LOCATION
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled, unset_hf_deepspeed_config
from transformers.trainer import TRAINER_STATE_NAME

from trainyard.protocol import checkpoint_manifest
from workers.rank.run_context import RunContext, Saved
from workers.trainers.checkpoint_shards import gather_files
from workers.trainers.deepspeed.configuration import LATEST
from workers.trainers.distributed import TIMEOUT, StepBoundary, wait_for_all
from workers.trainers.hf_trainer.checkpoints.async_save import (
    HostCheckpointSaver,
    random_state,
    shard_with_optimizer,
    state_files,
    state_text,
)
from workers.trainers.hf_trainer.checkpoints.description import Description, description, write_description
from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy


class _StateCapture(CheckpointEngine):  # type: ignore[misc]
    """Records what DeepSpeed would write in `taken`, by file."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[Path, Any] = {}
        self._copy = HostCopy()

    def create(self, info: CheckpointCommitInfo) -> None:  # noqa: ARG002
        self.taken = {}

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002
        """Does nothing: the writer thread creates directories. If the disk were full now, the other ranks would wait
        for this one forever.
        """

    def save(self, state_dict: dict[str, Any], path: str) -> None:
        self.taken[Path(path)] = state_dict

    def load(self, path: str, map_location: MAP_LOCATION = None) -> object:
        return torch.load(path, map_location=map_location, weights_only=False)

    def commit(self, info: CheckpointCommitInfo) -> bool:  # noqa: ARG002
        return True

    def fits(self) -> bool:
        """Whether this rank has memory for a copy of the captured state."""
        return self._copy.fits(self.taken)

    def copy(self) -> None:
        """Copies all files at once, because the buffers are reused in capture order."""
        self.taken = self._copy.take(self.taken)

    def write(self) -> None:
        """Safe on any thread."""
        self._copy.wait()
        for path, state in self.taken.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, path)


class ZeroCheckpointSaver(HostCheckpointSaver):
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
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._parts = _StateCapture()
        self._tokens: PreTrainedTokenizerBase | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._written: Future[None] | None = None
        self._copied = False
        self._state_files: dict[str, Any] = {}
        self._text = ""
        self._description: Sequence[Description] = ()

    def set_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().set_tokenizer(tokenizer)
        self._tokens = tokenizer

    def reserve(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Each rank's buffers are allocated when they are first filled."""

    def take(self, trainer: Trainer) -> None:
        randoms = self._boundary.gather(random_state(trainer))
        directory = Path(str(trainer.args.output_dir)) / f"checkpoint-{trainer.state.global_step}"
        if self._written is not None:
            # The first rank, which hands the checkpoint over, reports a failure.
            wait([self._written])
        if self._context.rank == 0:
            self._context.rest()
            checkpoint_manifest.discard(directory)
            self._state_files, self._text = state_files(trainer, randoms), state_text(trainer)
            self._description = self._description or description(trainer.accelerator.unwrap_model(trainer.model))
        wait_for_all()
        engine: Any = trainer.model_wrapped
        engine.checkpoint_engine = self._parts
        # It would be written now, and a full disk would leave the other ranks waiting; DeepSpeed provides it as a
        # module, too.
        engine._copy_recovery_script = _no_script  # noqa: SLF001
        engine.save_checkpoint(str(directory), save_latest=False, exclude_frozen_parameters=_has_frozen(engine))
        # If one rank lacks memory for a copy, all ranks wait until the state itself is written.
        self._copied = not self._boundary.any_rank(not self._parts.fits())
        if self._copied:
            self._parts.copy()
        self._written = self._writer.submit(self._write_part, directory)
        if not self._copied:
            wait([self._written])

    def commit(self, directory: Path, saved: Saved, best: BinaryIO | None) -> bool:  # noqa: ARG002
        """As `stop_and_save.CheckpointSaver`; best weights are not stored separately."""
        written, files, text = self._written, self._state_files, self._text
        if written is None:
            raise RuntimeError("nothing was taken to be committed")

        def write() -> None:
            written.result()
            (part,) = [path.name for path in directory.iterdir()]
            (directory / LATEST).write_text(part, encoding="utf-8")
            self._write_tokenizer(directory)
            write_description(self._description, directory)
            for name, value in files.items():
                torch.save(value, directory / name)
            (directory / TRAINER_STATE_NAME).write_text(text, encoding="utf-8")

        self._context.commit_checkpoint(directory, saved, write)
        return self._copied

    def restore(self, trainer: Trainer, checkpoint: str) -> None:
        shard_with_optimizer(trainer, checkpoint)

    def load_optimizer(self, trainer: Trainer, checkpoint: Path) -> bool:  # noqa: ARG002
        """DeepSpeed has loaded it already."""
        return True

    def whole_model(self, trainer: Trainer) -> PreTrainedModel | PeftModel | None:
        """In stage 3, a newly loaded model with the weights gathered in the memory of the first rank's host."""
        divided = is_deepspeed_zero3_enabled()  # type: ignore[no-untyped-call]
        if not divided:
            return super().whole_model(trainer)
        module = trainer.accelerator.unwrap_model(trainer.model)
        weights = _gathered(module, keep=self._context.rank == 0)
        # Otherwise this rank alone would start sharding what it loads.
        unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
        if self._context.rank != 0 or self._tokens is None:
            return None
        model = self._read_model(self._tokens)
        model.load_state_dict(weights)
        return model

    def _write_part(self, directory: Path) -> None:
        problem: Exception | None = None
        try:
            self._parts.write()
        except Exception as error:  # noqa: BLE001  (the others wait to hear of it)
            problem = error
        gather_files(directory, self._parts.taken, problem, self._group)


def _no_script(save_path: str) -> None:
    """Write nothing."""


def _has_frozen(engine: DeepSpeedEngine) -> bool:
    return any(not parameter.requires_grad for parameter in engine.module.parameters())


def _gathered(module: nn.Module, *, keep: bool) -> dict[str, torch.Tensor]:
    """The gathered parameters; collective. Ranks without `keep` get nothing."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        with GatheredParameters([tensor] if isinstance(tensor, torch.nn.Parameter) else []):
            if keep:
                found[name] = tensor.detach().cpu().clone()
    return found
