"""Which rank of a training the others wait for, and how much memory ranks take."""

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


class Pace(TrainerCallback):
    """How long this rank takes in a step by itself, without waiting for the others; added after `Boundaries`.

    There all ranks have just agreed, so they begin a step together. They also end it together, whichever is slow:
    only what a rank does before gradients are exchanged is its own. Where a model is divided, its ranks compute each
    layer together: there only the reading of records is.
    """

    def __init__(self, context: RunContext, boundary: StepBoundary) -> None:
        spec = context.spec
        self._boundary = boundary
        self._rank, self._ranks = context.rank, spec.world_size
        self._shares_layers = spec.framework != "HF_TRAINER"
        self._on_gpu = spec.device_type == "cuda"
        self._since: Moment | None = None
        self._pauses = False
        self._step: list[Span] = []  # of the one that is being made
        self._steps: list[list[Span]] = []  # since the last telling

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._shares_layers:
            self.waits()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._begin()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._begin()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._begin()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For the others, as long as the block lasts."""
        self.pause()
        yield
        self.go_on()

    def pause(self) -> None:
        """Until `go_on` the others decide how long it takes."""
        self._pauses = self._stop()

    def go_on(self) -> None:
        if self._pauses:
            self._pauses = False
            self._since = Moment(on_gpu=self._on_gpu)

    def waits(self) -> None:
        """From here on the others decide how long the step takes."""
        if self._stop():
            self._steps.append(self._step)

    def told(self) -> dict[str, float]:
        """Metrics of all ranks; every rank takes part. Without times until they have begun a step together."""
        own = [sum(begun.seconds_until(stopped) for begun, stopped in step) for step in self._steps]
        self._steps = []
        # In one sum, to which each rank adds in places of its own: quicker than to gather objects.
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
        """A step; what was counted of it before counts no more."""
        if self._ranks > 1:
            self._step, self._pauses, self._since = [], False, Moment(on_gpu=self._on_gpu)

    def _stop(self) -> bool:
        since, self._since = self._since, None
        if since is not None:
            self._step.append((since, Moment(on_gpu=self._on_gpu)))
        return since is not None


class Moment:
    """Of this process, and of the GPU when it comes to what was asked of it last: that runs behind."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.at = time.monotonic()
        self.event: torch.cuda.Event | None = None
        if on_gpu:
            self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self.event.record()

    def seconds_until(self, later: "Moment") -> float:
        """By whichever of the two took longer."""
        seconds = later.at - self.at
        if self.event is None or later.event is None:
            return seconds
        later.event.synchronize()
        return max(seconds, float(self.event.elapsed_time(later.event)) / 1000)


Span = tuple[Moment, Moment]


def peak_memory_bytes(*, on_gpu: bool) -> int:
    """The most that this rank has had: of the GPU's memory what tensors took, of the machine's all of the process."""
    if on_gpu:
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
