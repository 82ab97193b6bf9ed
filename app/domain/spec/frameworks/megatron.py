"""Megatron options of ``training_config.framework.config``: tensor and pipeline parallelism."""

from collections.abc import Mapping
from dataclasses import dataclass

MEGATRON = "MEGATRON"  # the framework
TENSOR, PIPELINE = "tensor_parallel", "pipeline_parallel"
_MOST = 1024


class InvalidParallelism(ValueError):
    """An invalid option of ``framework.config``; `name` is the option."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Sizes of the tensor, pipeline and data parallel groups."""

    tensor: int
    pipeline: int
    data: int


def parallelism(options: Mapping[str, str], devices: int) -> Parallelism:
    """Parallelism of the options on this number of devices; without options it is data parallel only.

    Raises InvalidParallelism.
    """
    for name in options:
        if name not in (TENSOR, PIPELINE):
            raise InvalidParallelism(name, f"{name} is unknown to MEGATRON; known: {TENSOR}, {PIPELINE}")
    tensor, pipeline = _count(options, TENSOR), _count(options, PIPELINE)
    if devices % (tensor * pipeline):
        raise InvalidParallelism(
            TENSOR if TENSOR in options else PIPELINE,
            f"{TENSOR} {tensor} times {PIPELINE} {pipeline} must divide the job's {devices} devices; lower one of them "
            f"or ask for a multiple of {tensor * pipeline} devices",
        )
    return Parallelism(tensor=tensor, pipeline=pipeline, data=devices // (tensor * pipeline))


def least_devices(options: Mapping[str, str]) -> int:
    """Number of devices for one copy of the model. Raises InvalidParallelism."""
    return _count(options, TENSOR) * _count(options, PIPELINE)


def _count(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "1").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _MOST):
        raise InvalidParallelism(name, f"{name} must be a whole number from 1 to {_MOST}, not {text[:32]!r}")
    return int(text)
