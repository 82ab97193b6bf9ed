"""The ranks of a training as one process group: joining, agreeing at step boundaries, leaving."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from app.domain.spec.frameworks.deepspeed import DEEPSPEED
from workers.rank.run_context import RunContext, RunSpec, Stop

T = TypeVar("T")

# Tokenizing on the first rank may take long while the others wait in a barrier.
TIMEOUT = timedelta(hours=6)
_LAUNCH_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# In order of precedence: when ranks received different requests, the highest applies to all.
_STOPS = (
    None,
    Stop("requeue", save_checkpoint=True),
    Stop("pause", save_checkpoint=True),
    Stop("requeue", save_checkpoint=True, force=True),
    Stop("pause", save_checkpoint=True, force=True),
    Stop("requeue", save_checkpoint=False),
    Stop("pause", save_checkpoint=False),
    Stop("cancel", save_checkpoint=False),
)


@dataclass(frozen=True)
class StepDecision:
    """What all ranks do at this step boundary."""

    stop: Stop | None
    save: bool


def join(spec: RunSpec) -> None:
    """Set the threads and device of this process, and join the process group if there are other ranks."""
    use_devices(spec)
    if spec.world_size == 1 and spec.framework != DEEPSPEED:
        # accelerate would form a group of one, which only DeepSpeed needs.
        for name in _LAUNCH_VARIABLES:
            os.environ.pop(name, None)
        return
    backend = "cpu:gloo,cuda:nccl" if spec.device_type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT)


def use_devices(spec: RunSpec) -> None:
    """Set the threads and device of this process."""
    torch.set_num_threads(spec.threads_per_rank)
    if spec.device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        limit_gpu_memory(spec.gpu_memory_fraction * (spec.gpu_memory_percent or 100) / 100)


def limit_gpu_memory(fraction: float) -> None:
    """Limit this process's share of GPU memory; its context and other libraries are not included.

    A process that exceeds its share runs out of memory itself, without taking that of other jobs.
    """
    if fraction < 1:
        torch.cuda.set_per_process_memory_fraction(fraction)


def leave() -> None:
    """Leave the process group, all ranks at the same moment.

    With the interpreter's own shutdown, gloo's threads abort about one process in ten after its success.
    """
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def wait_for_all() -> None:
    """Barrier of all ranks."""
    if dist.is_initialized():
        dist.barrier()


@contextmanager
def first_rank_first() -> Iterator[None]:
    """The first rank of each node runs the block first, then the others, which find its result in a cache."""
    is_first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    if not is_first:
        wait_for_all()
    yield
    if is_first:
        wait_for_all()


class StepBoundary:
    """Combines the control requests received by each rank into one decision of all ranks."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._requests_done = 0
        # Always on the CPU: an exchange must not make the GPU finish its queue first.
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None

    def decide(self) -> StepDecision:
        """Call once at the end of every step, on every rank."""
        heard = self._context.stop
        number = 0 if heard is None else heard.number
        weight, number, requests = self._agreed(_weight(heard), number, self._context.checkpoint_requests)
        stop = _STOPS[weight]
        if stop is not None:
            stop = replace(stop, number=number)
        asked, self._requests_done = requests > self._requests_done, requests
        return StepDecision(stop, save=stop.save_checkpoint if stop else asked)

    def is_save_asked(self) -> bool:
        """Whether this rank has heard of a request to save and continue that the ranks have not agreed on yet."""
        return self._context.checkpoint_requests > self._requests_done

    def any_rank(self, value: bool) -> bool:  # noqa: FBT001
        """Whether any rank says so; collective."""
        return bool(self._agreed(int(value))[0])

    def summed(self, numbers: list[float]) -> list[float]:
        """Elementwise sums over all ranks; collective."""
        if self._group is None:
            return numbers
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, group=self._group)
        return [float(value) for value in values.tolist()]

    def gather(self, value: T) -> list[T]:
        """Each rank's value, in rank order, on rank 0; other ranks get nothing. Collective."""
        if self._group is None:
            return [value]
        found: list[Any] | None = [None] * dist.get_world_size() if self._context.rank == 0 else None
        dist.gather_object(value, found, dst=0, group=self._group)
        return found or []

    def _agreed(self, *numbers: int) -> list[int]:
        """The elementwise maximum over all ranks."""
        if self._group is None:
            return list(numbers)
        values = torch.tensor(numbers)
        dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self._group)
        return [int(value) for value in values.tolist()]


def _weight(stop: Stop | None) -> int:
    return 0 if stop is None else _STOPS.index(replace(stop, number=0))
