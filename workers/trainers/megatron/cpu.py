"""Runs Megatron on machines without CUDA by redirecting its torch.cuda calls to the CPU.

All other code here says "cuda" for the available device.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from megatron.core.tensor_parallel import random as megatron_random
from torch.overrides import TorchFunctionMode


@contextmanager
def cuda_or_cpu() -> Iterator[None]:
    """Does nothing with CUDA; otherwise redirects CUDA calls in the block to the CPU."""
    with ExitStack() as undo:
        if not torch.cuda.is_available():
            undo.enter_context(_replaced(torch.cuda, "current_device", lambda: torch.device("cpu")))
            undo.enter_context(_replaced(torch.cuda, "synchronize", lambda *_: None))
            undo.enter_context(_replaced(torch.cuda, "manual_seed", torch.manual_seed))
            undo.enter_context(_replaced(megatron_random, "CudaRNGStatesTracker", _CpuStates))
            undo.enter_context(_replaced(megatron_random, "_get_cuda_rng_state", lambda **_: torch.get_rng_state()))
            undo.enter_context(
                _replaced(megatron_random, "_set_cuda_rng_state", lambda state, **_: torch.set_rng_state(state))
            )
            undo.enter_context(_CudaMeansCpu())
        yield


class _CudaMeansCpu(TorchFunctionMode):
    """Redirects calls that name the device, and gradient clipping, which checks for CUDA tensor types."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        found = func(*args, **kwargs)
        return found.replace("torch.", "torch.cuda.", 1) if func is torch.Tensor.type and type(found) is str else found


class _CpuStates(megatron_random.CudaRNGStatesTracker):  # type: ignore[misc]
    """Named CPU random states, each for one kind of sampling."""

    def add(self, name: str, seed: int) -> None:
        self._is_initialized = True
        self.seeds_.add(seed)
        self.states_[name] = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def fork(self, name: str = megatron_random._MODEL_PARALLEL_RNG_TRACKER_NAME) -> Iterator[None]:  # noqa: SLF001
        outside = torch.get_rng_state()
        torch.set_rng_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = torch.get_rng_state()
            torch.set_rng_state(outside)


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
