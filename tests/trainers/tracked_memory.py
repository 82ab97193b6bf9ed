"""Real trainings of small models on the CPU, with the bytes of tensors that live at their peaks: `python -m
tests.trainers.tracked_memory PLAN`.

torch's own MemTracker hooks modules, and refuses frozen weights and several steps; this mode keeps to its way of
following storages.
"""

import gc
import json
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers.trainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary
from transformers import TrainerCallback

from tests.trainers.exact_runs import run
from workers.rank.run_context import RunSpec
from workers.trainers import distributed

STEPS = 2  # that are tracked: the optimizer's state exists from the second on


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that operations return, as long as each lives."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: Any = WeakIdKeyDictionary()

    def see(self, tensor: torch.Tensor) -> None:
        """Count a tensor that exists already."""
        if tensor.device.type != "cpu":
            return
        with suppress(NotImplementedError, RuntimeError):  # tensors without storage
            self._count(tensor.untyped_storage())

    def _count(self, storage: torch.UntypedStorage) -> None:
        found = self._sizes.get(storage)
        if found is None:
            size = [storage.nbytes()]
            self._sizes[storage] = (size, weakref.ref(storage, partial(self._gone, size)))
        else:
            size = found[0]
            self.now -= size[0]
            size[0] = storage.nbytes()
        self.now += size[0]

    def _gone(self, size: list[int], _: object) -> None:
        self.now -= size[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.see, found)
        self.peak = max(self.peak, self.now)
        return found


class _Tracking(TrainerCallback):
    """Tracks from the first step to the last one's end, so that neither loading nor saving counts."""

    peak = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 0:
            self._tracker = LiveBytes()
            for tensor in _tensors():
                self._tracker.see(tensor)
            self._tracker.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == STEPS:
            self._tracker.__exit__(None, None, None)
            _Tracking.peak = self._tracker.peak


def _tensors() -> Iterator[torch.Tensor]:
    for each in gc.get_objects():
        with suppress(ReferenceError):
            if isinstance(each, torch.Tensor):
                yield each


@contextmanager
def _tracked() -> Iterator[None]:
    callbacks: list[Any] = transformers.trainer.DEFAULT_CALLBACKS
    callbacks.append(_Tracking)
    try:
        yield
    finally:
        callbacks.remove(_Tracking)


def peak_of(plan: dict[str, Any]) -> int:
    """Bytes of all tensors at the peak of a run."""
    _Tracking.peak = 0
    gc.collect()
    with _tracked():
        outcome = run(plan)
    if outcome["error"]:
        raise RuntimeError(outcome["error"])
    return _Tracking.peak


def main() -> None:
    """Write the peak of each run of the plan beside it."""
    path = Path(sys.argv[1])
    plans = json.loads(path.read_text())
    distributed.join(RunSpec.from_document(next(iter(plans.values()))["spec"]))
    path.with_suffix(".peaks").write_text(json.dumps({name: peak_of(plan) for name, plan in plans.items()}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
