"""Checkpoints in Megatron's distributed format: each rank writes its shard, and any number of ranks can resume.

Training pauses only for planning and a copy; threads of the ranks write the files. Megatron's own asynchronous writer
forks a process, and finishes with a collective of all ranks in the middle of the training; here the threads use their
own process group.
"""

import json
import queue
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.core import CheckpointingConfig, save_config
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync, WriteBucket
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy
from torch import nn
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import WriteResult
from transformers import PreTrainedTokenizerBase, TrainerState

from trainyard.protocol import checkpoint_manifest
from workers.rank.run_context import RunContext, Saved
from workers.trainers.checkpoint_shards import gather_files
from workers.trainers.distributed import TIMEOUT, StepBoundary, wait_for_all
from workers.trainers.hf_trainer.checkpoints.description import write_description
from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy
from workers.trainers.megatron.layout import random_state
from workers.trainers.megatron.model import ModelShard

STATE_FILE = "trainer_state.json"
RANDOM_FILE = "random_states.pt"
_FORMAT = "torch_dist"


class _Planned(TorchDistSaveShardedStrategy):  # type: ignore[misc]
    """Megatron's save strategy, stopped after planning which rank writes what."""

    writer: FileSystemWriterAsync
    metadata: Metadata

    def _get_save_and_finalize_callbacks(self, writer: FileSystemWriterAsync, planned: tuple[Any, ...]) -> AsyncRequest:
        self.writer, self.metadata = writer, planned[1]
        return super()._get_save_and_finalize_callbacks(writer, planned)


class MegatronCheckpointSaver:
    """One save at a time: every rank calls `take`, then rank 0 calls `commit`."""

    def __init__(self, context: RunContext, boundary: StepBoundary) -> None:
        self._context = context
        self._boundary = boundary
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._copy = HostCopy()
        self._tokenizer = context.work_dir / "tokenizer"
        self._directory = Path()
        self._write: Callable[[], None] | None = None
        self._copied = False
        self._thread: threading.Thread | None = None
        self._validated = False

    def set_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if self._context.rank == 0:
            tokenizer.save_pretrained(self._tokenizer)

    def reserve(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """The assignment of tensors to ranks is planned with the first checkpoint."""

    def take(self, directory: Path, part: ModelShard, state: TrainerState, common: dict[str, Any]) -> None:
        """Copy the current state for a checkpoint; collective. All ranks except the first start writing."""
        randoms = self._boundary.gather(random_state())
        self._finish_last()
        if self._context.rank == 0:
            self._context.rest()
            checkpoint_manifest.discard(directory)
            directory.mkdir(parents=True)
        wait_for_all()
        directory.mkdir(parents=True, exist_ok=True)  # on other nodes
        strategy = self._plan(directory, part, common)
        buckets = strategy.writer.write_buckets
        tensors = [[tensor for _, tensor in bucket[2][1]] for bucket in buckets]
        # If one rank lacks memory for a copy, all ranks wait until the state itself is written.
        self._copied = not self._boundary.any_rank(not self._copy.fits(tensors))
        if self._copied:
            buckets = [_with(*both) for both in zip(buckets, self._copy.take(tensors), strict=True)]
        elif torch.cuda.is_available():
            buckets = [
                _with(bucket, [tensor.cpu() for tensor in each]) for bucket, each in zip(buckets, tensors, strict=True)
            ]
        text = json.dumps(asdict(state), indent=2, sort_keys=True) + "\n"
        write = partial(self._write_shards, strategy, buckets, directory)
        if self._context.rank == 0:
            self._write = partial(self._write_all, write, directory, part, text, randoms)
            return
        self._thread = threading.Thread(target=write, name="checkpoint")
        self._thread.start()
        if not self._copied:
            self._finish_last()

    def commit(self, directory: Path, saved: Saved, best: BinaryIO | None) -> bool:  # noqa: ARG002
        """As `stop_and_save.CheckpointSaver`; best weights are not supported by this framework."""
        if self._write is None:
            raise RuntimeError("nothing was taken to be committed")
        write, self._write = self._write, None
        self._context.commit_checkpoint(directory, saved, write)
        return self._copied

    def _finish_last(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _plan(self, directory: Path, part: ModelShard, common: dict[str, Any]) -> _Planned:
        # Megatron would start a manager process, and the queue would have to come from it.
        filesystem_async._results_queue = queue.Queue()  # noqa: SLF001
        strategy = _Planned(_FORMAT, 1, thread_count=1)
        state = {**sharded_state(part, is_loading=False), **common}
        dist_checkpointing.save(
            state,
            str(directory),
            sharded_strategy=strategy,
            async_sharded_save=True,
            validate_access_integrity=not self._validated,
        )
        self._validated = True
        return strategy

    def _write_all(
        self, write: Callable[[], None], directory: Path, part: ModelShard, state: str, randoms: list[dict[str, object]]
    ) -> None:
        write()
        write_description(part.description, directory)
        save_config(CheckpointingConfig(_FORMAT, 1), str(directory))
        shutil.copytree(self._tokenizer, directory, dirs_exist_ok=True)
        torch.save(randoms, directory / RANDOM_FILE)
        (directory / STATE_FILE).write_text(state, encoding="utf-8")

    def _write_shards(self, strategy: _Planned, buckets: list[WriteBucket], directory: Path) -> None:
        """Write this rank's files; the first rank then writes the metadata. Raises a write error of any rank."""
        self._copy.wait()
        problem: Exception | None = None
        written: list[list[WriteResult]] = []
        try:
            written = [_written(strategy.writer, number, bucket) for number, bucket in enumerate(buckets)]
        except Exception as error:  # noqa: BLE001  whatever it is, the first rank raises it
            problem = error
        gather_files(directory, [Path(bucket[0]) for bucket in buckets], problem, self._group)
        outcomes: list[Any] | None = [None] * dist.get_world_size() if self._context.rank == 0 else None
        dist.gather_object(written, outcomes, dst=0, group=self._group)
        if outcomes is not None:
            results = [[result for bucket in of_rank for result in bucket] for of_rank in outcomes]
            strategy.writer.finish(strategy.metadata, results)


def sharded_state(part: ModelShard, *, is_loading: bool) -> dict[str, Any]:
    """All tensors of model and optimizer, each with its position in the full tensor."""
    model = part.module.sharded_state_dict(prefix="model.")
    return {**model, "optimizer": part.optimizer.sharded_state_dict(model, is_loading=is_loading)}


def load(checkpoint: Path, part: ModelShard) -> dict[str, Any]:
    """Load model and optimizer from a checkpoint; returns the rest of its common state."""
    found = dist_checkpointing.load(sharded_state(part, is_loading=True), str(checkpoint))
    part.optimizer.load_state_dict(found.pop("optimizer"))
    weights = {name.removeprefix("model."): found.pop(name) for name in list(found) if name.startswith("model.")}
    part.module.load_state_dict(weights, strict=False)
    return dict(found)


def _with(bucket: WriteBucket, tensors: list[torch.Tensor]) -> WriteBucket:
    """The same write plan for copies of its tensors."""
    path, key, (small, planned) = bucket
    items = [item for item, _ in planned]
    return path, key, (small, list(zip(items, tensors, strict=True)))


def _written(writer: FileSystemWriterAsync, number: int, bucket: WriteBucket) -> list[WriteResult]:
    """The write result of one file. Raises OSError."""
    results: queue.SimpleQueue[tuple[int, list[WriteResult] | Exception]] = queue.SimpleQueue()
    pending: queue.Queue[int] = queue.Queue()
    pending.put(number)
    FileSystemWriterAsync.write_preloaded_data([writer.transforms], number, bucket, results, pending, use_fsync=True)
    _, found = results.get()
    if isinstance(found, Exception):
        raise found
    return found
