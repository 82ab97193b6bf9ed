"""Bytes of weights, gradients and optimizer states of one copy of a model, before it is divided over devices.

Dettmers et al., QLoRA, 2023 (arXiv:2305.14314): 4 bits for a weight and a scale for 64 of them, which double
quantization stores in 8 bits with one float32 for 256 scales. Hu et al., LoRA, 2021 (arXiv:2106.09685). Shazeer and
Stern, Adafactor, 2018 (arXiv:1804.04235): a sum for each row and each column.
"""

from dataclasses import dataclass

from app.domain.memory.activations import is_target
from app.domain.memory.architecture import Architecture
from app.domain.memory.work import Work

_FLOAT32 = 4
_EMBEDDINGS = ("embed_tokens", "wte", "embed_in")
_HEADS = ("lm_head", "embed_out", "score")
_PER_PARAMETER = {"adamw_torch": 2, "adamw_torch_fused": 2, "adagrad": 1, "rmsprop": 1, "sgd": 0}


@dataclass(frozen=True, kw_only=True)
class States:
    """``trained`` is a number of parameters, of ``trained_size`` bytes each; the others are bytes."""

    weights: int
    adapters: int
    trained: int
    trained_size: int
    optimizer: int
    step: int  # in use during the optimizer's step
    dequantized: int  # the largest weight that is computed with, of 4-bit weights

    @property
    def gradients(self) -> int:
        return self.trained * self.trained_size

    def optimizer_of(self, master: int) -> int:
        """The states follow the format of the weights that the optimizer updates: the float32 copies, if there are."""
        return self.optimizer * master // self.trained_size if master else self.optimizer


def states_of(model: Architecture, work: Work) -> States:
    parameters = _parameters(model, work)
    weights = _quantized(model, work, parameters) if work.quantized else parameters * work.numerics.weights
    size = work.numerics.weights
    low = whole = 0
    if work.adapter is not None:
        low, whole = _low_rank(model, work), _whole(model, work)
        size = _FLOAT32
    trained = low + whole if work.adapter is not None else parameters
    largest = max(each.parameters for each in model.linears)
    return States(
        weights=weights,
        adapters=(low + whole) * size if work.adapter is not None else 0,
        trained=trained,
        trained_size=size,
        optimizer=_optimizer(model, work, trained, size),
        step=_step(model, work, trained, size),
        dequantized=largest * work.numerics.compute if work.quantized else 0,
    )


def _parameters(model: Architecture, work: Work) -> int:
    if not work.scores:
        return model.parameters
    return model.parameters - (0 if model.tied else model.embedding) + model.hidden


def _quantized(model: Architecture, work: Work, parameters: int) -> int:
    """All linear modules but the head; embeddings, norms and biases are not."""
    weights = sum(each.inputs * each.outputs * times for each, times in model.all_linears())
    scales = weights / 64 + weights / 64 / 256 * _FLOAT32 if work.double_quantized else weights / 64 * _FLOAT32
    return int(weights / 2 + scales) + (parameters - weights) * work.numerics.weights


def _low_rank(model: Architecture, work: Work) -> int:
    adapter = work.adapter
    if adapter is None:
        return 0
    return sum(
        adapter.rank * (each.inputs + each.outputs) * times
        for each, times in model.all_linears()
        if is_target(each, adapter)
    )


def _whole(model: Architecture, work: Work) -> int:
    """Copies of the modules that are trained whole, and the score head of a reward model."""
    if work.adapter is None:
        return 0
    names = work.adapter.whole
    found = sum(model.embedding for group in (_EMBEDDINGS, _HEADS) if names.intersection(group))
    found += sum(each.parameters * times for each, times in model.all_linears() if each.name in names)
    return found + (model.hidden if work.scores else 0)


def _optimizer(model: Architecture, work: Work, trained: int, size: int) -> int:
    if work.optimizer in _PER_PARAMETER:
        return _PER_PARAMETER[work.optimizer] * trained * size
    if work.adapter is not None:
        return trained * _FLOAT32 // max(1, work.adapter.rank) * 2
    sums = sum((each.inputs + each.outputs) * times for each, times in model.all_linears())
    if model.experts is not None:
        each_expert = 4 * model.hidden + 3 * model.experts.width
        sums += model.experts.layers * model.experts.count * each_expert
    sums += (model.vocabulary + model.hidden) * (1 if model.tied else 2) + model.layers * model.norms
    return sums * _FLOAT32


def _step(model: Architecture, work: Work, trained: int, size: int) -> int:
    """A GPU updates all weights at once (foreach), a CPU one after the other; fused needs nothing."""
    largest = max(model.embedding, *(each.parameters for each in model.linears))
    if work.adapter is not None:
        largest = min(largest, trained)
    if work.optimizer in {"adamw_torch_fused", "sgd"}:
        return 0
    if work.optimizer == "adafactor":
        return 3 * largest * _FLOAT32
    return 2 * largest * size if work.numerics.on_cpu else trained * size
