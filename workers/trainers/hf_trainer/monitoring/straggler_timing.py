"""Detects straggling ranks by their own compute time per step, and reports peak memory per rank."""

# ruff: noqa: ARG002  (transformers calls every handler with the same arguments)

import math
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from workers.rank.run_context import RunContext
from workers.trainers.distributed import StepBoundary

_MIB = 1 << 20


class StepTimer(TrainerCallback):
    """Measures this rank's own compute time per step, without waiting for other ranks; added after
    `StopAndSaveCallback`.

    All ranks synchronize in that callback, so they begin a step together. They also end it together, because the
    gradient exchange waits for the slowest rank: only the time before the exchange is the rank's own. Ranks of a
    sharded model synchronize in every layer, so only their data loading is measured.
    """

    def __init__(self, context: RunContext, boundary: StepBoundary) -> None:
        spec = context.spec
        self._boundary = boundary
        self._rank, self._ranks = context.rank, spec.world_size
        self._shares_layers = spec.framework != "HF_TRAINER"
        self._on_gpu = spec.device_type == "cuda"
        self._since: Timestamp | None = None
        self._pauses = False
        self._step: list[Span] = []  # spans of the current step
        self._steps: list[list[Span]] = []  # completed steps since the last report

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._shares_layers:
            self.wait_begins()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._begin()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._begin()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._begin()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Exclude the time inside the block, which is spent waiting for other ranks."""
        self.pause()
        yield
        self.resume()

    def pause(self) -> None:
        """Stop measuring until `resume`; the time depends on other ranks."""
        self._pauses = self._stop()

    def resume(self) -> None:
        if self._pauses:
            self._pauses = False
            self._since = Timestamp(on_gpu=self._on_gpu)

    def wait_begins(self) -> None:
        """From here on the step's duration depends on other ranks."""
        if self._stop():
            self._steps.append(self._step)

    def metrics(self) -> dict[str, float]:
        """Metrics over all ranks; collective. Contains no times until the ranks have begun a step together."""
        own = [sum(begun.seconds_until(stopped) for begun, stopped in step) for step in self._steps]
        self._steps = []
        # One all-reduce with separate slots per rank is faster than gathering objects.
        places = [0.0] * (2 * self._ranks)
        mean = sum(own) / len(own) if own else math.nan
        places[2 * self._rank : 2 * self._rank + 2] = peak_memory_bytes(on_gpu=self._on_gpu), mean
        found = self._boundary.summed(places)
        memory, seconds = found[0::2], found[1::2]
        values = {"rank_memory_mb_max": max(memory) / _MIB}
        if not any(map(math.isnan, seconds)):
            slowest = max(range(self._ranks), key=seconds.__getitem__)
            values |= {
                "slowest_rank": float(slowest),
                "slowest_rank_seconds": seconds[slowest],
                "fastest_rank_seconds": min(seconds),
            }
        return values

    def _begin(self) -> None:
        """Begin a step and discard earlier measurements of it."""
        if self._ranks > 1:
            self._step, self._pauses, self._since = [], False, Timestamp(on_gpu=self._on_gpu)

    def _stop(self) -> bool:
        since, self._since = self._since, None
        if since is not None:
            self._step.append((since, Timestamp(on_gpu=self._on_gpu)))
        return since is not None


class Timestamp:
    """A timestamp of this process and of the GPU, which executes its queue asynchronously."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.at = time.monotonic()
        self.event: torch.cuda.Event | None = None
        if on_gpu:
            self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self.event.record()

    def seconds_until(self, later: "Timestamp") -> float:
        """The longer of the CPU time and the GPU time between the two."""
        seconds = later.at - self.at
        if self.event is None or later.event is None:
            return seconds
        later.event.synchronize()
        return max(seconds, float(self.event.elapsed_time(later.event)) / 1000)


Span = tuple[Timestamp, Timestamp]


def peak_memory_bytes(*, on_gpu: bool) -> int:
    """Peak memory of this rank: allocated tensors on a GPU, resident memory of the process otherwise."""
    if on_gpu:
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
