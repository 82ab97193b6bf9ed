"""How several devices divide weights, gradients, optimizer states and layers, and what they hold of them for a while.

Rajbhandari et al., ZeRO, 2020 (arXiv:1910.02054) and ZeRO-Offload (arXiv:2101.06840); Zhao et al., PyTorch FSDP, 2023
(arXiv:2304.11277); Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM,
2021 (arXiv:2104.04473).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.domain.memory.architecture import Architecture
from app.domain.memory.numerics import Numerics
from app.domain.memory.states import States
from app.domain.memory.work import NotEstimated, Work
from app.domain.spec.frameworks.deepspeed import InvalidZero, zero
from app.domain.spec.frameworks.fsdp import CPU_OFFLOAD, InvalidSharding, sharding
from app.domain.spec.frameworks.megatron import InvalidParallelism, parallelism
from app.domain.spec.model import JobDocument

_FLOAT32 = 4
# DeepSpeed's defaults, in parameters: reduce_bucket_size, and stage3_max_live_parameters.
_BUCKET, _LIVE = 500_000_000, 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Division:
    """Shares are of what one device would hold alone; ``master``: bytes of a float32 copy of a trained weight."""

    work: Work
    weights: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0
    reference: float = 1.0
    gradient_size: int = 0  # 0: as the weights
    master: int = 0
    live: int = 0  # bytes of weights that are gathered at a time
    buckets: int = 0  # bytes of gradients on their way
    tensor: int = 1
    stages: int = 1
    keeps_gradients: bool = False  # in buffers that live as long as the training


def divided(work: Work, document: JobDocument, devices: int, model: Architecture, states: States) -> Division:
    """Raises NotEstimated."""
    options = document.training_config.framework.config
    try:
        return _DIVISIONS[work.framework](work, options, devices, model, states)
    except KeyError:
        raise NotEstimated(f"how {work.framework[:80]} divides a training is not known") from None
    except (InvalidZero, InvalidSharding, InvalidParallelism) as error:
        raise NotEstimated(error.message) from error


def in_compute_format(work: Work) -> Work:
    """Frameworks that keep weights and residuals in the format in which they compute, and float32 copies apart."""
    number = work.numerics
    if work.framework not in ("DEEPSPEED", "MEGATRON", "FSDP"):
        return work
    return replace(work, numerics=Numerics(weights=number.compute, compute=number.compute, on_cpu=number.on_cpu))


def _data_parallel(work: Work, _: Mapping[str, str], devices: int, _model: Architecture, states: States) -> Division:
    """Every device has everything; DistributedDataParallel copies gradients into buckets."""
    return Division(work=work, buckets=states.gradients if devices > 1 else 0)


def _fsdp(work: Work, options: Mapping[str, str], devices: int, model: Architecture, states: States) -> Division:
    """FSDP2 keeps weights in their own format, a part on each device, and gathers layers in that of computation.

    The root (embeddings, head) stays gathered, and the next layer is fetched while one is computed.
    """
    if devices == 1:
        return _data_parallel(work, options, devices, model, states)
    inner = in_compute_format(work)
    root = model.parameters - model.in_layers
    size = inner.numerics.compute
    share = 0.0 if sharding(options)[CPU_OFFLOAD] and not work.numerics.on_cpu else 1 / devices
    return Division(
        work=inner,
        weights=share,
        reference=share,
        gradients=share,
        optimizer=share,
        gradient_size=states.trained_size,
        live=(root + 2 * model.largest_layer) * size,
        buckets=0 if work.adapter else model.largest_layer * size,
    )


def _deepspeed(work: Work, options: Mapping[str, str], devices: int, model: Architecture, _states: States) -> Division:
    """ZeRO 1 divides optimizer states and float32 weights, 2 gradients, too, and 3 weights, too."""
    asked, inner = zero(options), in_compute_format(work)
    size, part = inner.numerics.compute, 1 / devices
    weights = part if asked.stage == 3 else 1.0
    return Division(
        work=inner,
        weights=0.0 if asked.offload_param else weights,
        reference=weights,
        gradients=0.0 if asked.offload_optimizer and asked.stage > 1 else (part if asked.stage > 1 else 1.0),
        optimizer=0.0 if asked.offload_optimizer else part,
        gradient_size=size,
        master=_FLOAT32,
        live=min(model.parameters, _LIVE) * size if asked.stage == 3 else 0,
        buckets=_BUCKET * size,  # however small the model is
    )


def _megatron(work: Work, options: Mapping[str, str], devices: int, _model: Architecture, _states: States) -> Division:
    """Layers are divided over the stages of a pipeline, and each linear module over the tensor-parallel devices."""
    shape, inner = parallelism(options, devices), in_compute_format(work)
    share = 1 / (shape.tensor * shape.pipeline)
    low = inner.numerics.compute < _FLOAT32
    return Division(
        work=inner,
        weights=share,
        gradients=share,
        optimizer=share,
        gradient_size=_FLOAT32,
        master=_FLOAT32 if low else 0,
        tensor=shape.tensor,
        stages=shape.pipeline,
        keeps_gradients=True,
    )


_Divide = Callable[[Work, Mapping[str, str], int, Architecture, States], Division]
_DIVISIONS: dict[str, _Divide] = {
    "HF_TRAINER": _data_parallel,
    "FSDP": _fsdp,
    "DEEPSPEED": _deepspeed,
    "MEGATRON": _megatron,
}
