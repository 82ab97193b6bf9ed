"""Copies training tensors to host memory, so that they can be written while the training changes them."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import TypeVar, cast

import torch

T = TypeVar("T")

# Required free memory relative to the copy: caches, logs and the next batch need some too.
_HEADROOM = 1.25
_MEMORY = Path("/proc/meminfo")
# The cgroup limit as processes of the job see it.
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")

_Memory = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


class HostCopy:
    """Reusable buffers for copies; allocating them takes several times as long as copying.

    They use as much host memory as the copied tensors: 12 bytes per parameter for full training with Adam in float32,
    very little for an adapter. With a GPU they are pinned and the copy runs in the GPU's stream: the training does not
    wait for it, `wait` does.
    """

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []
        self._filled: torch.cuda.Event | None = None

    def fits(self, value: object) -> bool:
        """Whether memory suffices for a copy of all tensors in `value` beyond the existing buffers."""
        needed = size_bytes(value) - sum(buffer.nbytes for buffer in self._buffers)
        return needed * _HEADROOM <= available_bytes()

    def reserve(self, value: object) -> None:
        """Allocate buffers for values of this shape, so that the first copy is as fast as later ones."""
        for number, tensor in enumerate(_unique(value)):
            self._buffer(number, tensor).zero_()

    def take(self, value: T) -> T:
        """The same structure of dictionaries and lists with all tensors copied; tensors that share memory share it in
        the copy.
        """
        copies: dict[_Memory, torch.Tensor] = {}

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            key = _memory(tensor)
            if key not in copies:
                copies[key] = self._buffer(len(copies), tensor).copy_(tensor.detach(), non_blocking=True)
            return copies[key]

        found = cast("T", _mapped(value, copied))
        if torch.cuda.is_available():
            self._filled = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._filled.record()
        return found

    def wait(self) -> None:
        """Block until the last copy is complete; callable from any thread."""
        if self._filled is not None:
            self._filled.synchronize()

    def _buffer(self, number: int, like: torch.Tensor) -> torch.Tensor:
        if number == len(self._buffers):
            self._buffers.append(_empty(like))
        elif (self._buffers[number].shape, self._buffers[number].dtype) != (like.shape, like.dtype):
            self._buffers[number] = _empty(like)
        return self._buffers[number]


def size_bytes(value: object) -> int:
    """Total size of all tensors in `value`."""
    return sum(tensor.nbytes for tensor in _unique(value))


def available_bytes() -> int:
    """Host memory that this process may still allocate."""
    fields = (line.split() for line in _MEMORY.read_text().splitlines())
    free = next(int(words[1]) * 1024 for words in fields if words[0] == "MemAvailable:")
    try:
        return min(free, int(_LIMIT.read_text()) - int(_USED.read_text()))
    except (OSError, ValueError):  # there is no limit, or it is "max"
        return free


def _empty(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)


def _mapped(value: object, change: Callable[[torch.Tensor], torch.Tensor]) -> object:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(each, change) for each in value)
    return deepcopy(value)


def _unique(value: object) -> list[torch.Tensor]:
    """Every tensor once, in the order of `take`."""
    found: dict[_Memory, torch.Tensor] = {}

    def noted(tensor: torch.Tensor) -> torch.Tensor:
        return found.setdefault(_memory(tensor), tensor)

    _mapped(value, noted)
    return list(found.values())


def _memory(tensor: torch.Tensor) -> _Memory:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
