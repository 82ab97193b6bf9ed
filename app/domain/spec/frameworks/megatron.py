"""How Megatron divides a model among its ranks, as ``training_config.framework.config`` says it."""

from collections.abc import Mapping
from dataclasses import dataclass

MEGATRON = "MEGATRON"  # the framework
TENSOR, PIPELINE = "tensor_parallel", "pipeline_parallel"
_MOST = 1024


class InvalidParallelism(ValueError):
    """An option of ``framework.config`` that can't be followed: `name` is the option."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """`tensor` ranks share each layer, `pipeline` groups of them share the layers, `data` such groups the records."""

    tensor: int
    pipeline: int
    data: int


def parallelism(options: Mapping[str, str], devices: int) -> Parallelism:
    """What the options make of so many devices; without any, each device has the whole model.

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
    """How many devices one whole model takes. Raises InvalidParallelism."""
    return _count(options, TENSOR) * _count(options, PIPELINE)


def _count(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "1").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _MOST):
        raise InvalidParallelism(name, f"{name} must be a whole number from 1 to {_MOST}, not {text[:32]!r}")
    return int(text)
