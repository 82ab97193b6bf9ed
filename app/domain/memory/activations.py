"""Bytes of activations: what autograd keeps of a forward pass for each token of each layer.

After Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022 (arXiv:2205.05198), whose
formula is for one kind of layer in 16 bits; this follows the modules of transformers operation by operation. With
gradient checkpointing (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, arXiv:1604.06174) a layer
keeps its input, and one layer at a time is computed again.
"""

from dataclasses import dataclass

from app.domain.memory.architecture import Architecture, Linear
from app.domain.memory.work import ALL_LINEAR, Adapter, Work

_FLOAT32 = 4
_SOURCES = ("attention", "context", "mlp", "product")


@dataclass(frozen=True, kw_only=True)
class LayerBytes:
    """Of one layer and all tokens of a pass: kept until its backward pass, and in use within that."""

    kept: int
    input: int
    backward: int


def of_layer(model: Architecture, work: Work) -> LayerBytes:
    number = work.numerics
    per_token = _norms(model, work) + _inputs(model, work) + _attention(model, work) + _mlp(model, work)
    per_token += _dropout(model, work)
    gradients = number.compute * (3 * model.mlp + 2 * model.attention_width) + 2 * number.residual * model.hidden
    if attention_of(model, work) == "eager":
        gradients = max(gradients, 3 * model.heads * work.length * _FLOAT32)
    return LayerBytes(
        kept=int(per_token * work.tokens),
        input=number.residual * model.hidden * work.tokens,
        backward=gradients * work.tokens,
    )


def attention_of(model: Architecture, work: Work) -> str:
    return "eager" if work.framework == "MEGATRON" else work.attention or model.family.attention


def is_target(linear: Linear, adapter: Adapter) -> bool:
    """Whether a linear module gets an adapter."""
    return adapter.targets == {ALL_LINEAR} or any(
        linear.name == name or name.endswith(f".{linear.name}") or linear.name.endswith(f".{name}")
        for name in adapter.targets
    )


def _norms(model: Architecture, work: Work) -> float:
    """The input, in float32, and the normed input, by which the gradient of the weight is made."""
    number, trained = work.numerics, work.adapter is None
    if model.family.norm == "layer":
        return model.family.norms * number.residual * model.hidden
    normed = _FLOAT32 if model.family.norm == "float_rms" else number.residual
    of_one = _FLOAT32 + (normed if trained else 0)
    heads = of_one * (model.attention_width + model.kv_width) if model.family.head_norms else 0
    return model.family.norms * of_one * model.hidden + heads


def _inputs(model: Architecture, work: Work) -> float:
    """Inputs of linear modules, besides those that attention keeps anyway."""
    found = 0.0
    for source in _SOURCES:
        members = [each for each in model.linears if each.source == source]
        if source in ("mlp", "product") and not model.mlp_layers:
            continue
        if work.adapter is None:
            found += _trained_inputs(members, work) if source != "context" else 0
        else:
            found += _adapter_inputs([each for each in members if is_target(each, work.adapter)], work, work.adapter)
    return found


def _trained_inputs(members: list[Linear], work: Work) -> float:
    number = work.numerics
    # autocast makes a copy of a float32 tensor for each module that reads it.
    copies = len(members) if number.casts and members[0].source != "product" else 1
    return copies * number.compute * members[0].inputs


def _adapter_inputs(members: list[Linear], work: Work, adapter: Adapter) -> float:
    """Dropout keeps its mask, and makes a copy for each module; a GPU's mask has one byte for each number."""
    if not members:
        return 0.0
    number, width, source = work.numerics, members[0].inputs, members[0].source
    low = len(members) * adapter.rank * number.compute
    if adapter.dropout:
        mask = number.compute if number.on_cpu else 1
        return low + len(members) * width * (mask + number.compute)
    if number.casts or (number.compute < _FLOAT32 and not number.on_cpu):
        return low + len(members) * width * number.compute
    return low + (0 if source == "context" else number.compute * width)


def _attention(model: Architecture, work: Work) -> float:
    number = work.numerics
    if attention_of(model, work) == "eager":
        scores = _FLOAT32 + (number.compute if number.compute < _FLOAT32 else 0)
        if model.model_type == "gemma2":
            scores += number.compute  # the soft cap of the scores
        return 4 * number.compute * model.attention_width + model.heads * work.length * scores
    read = 2 * model.attention_width + 2 * model.kv_width
    if model.drops_attention and number.on_cpu:
        # No fused kernel of a CPU drops: the scores, their mask, and what is left of them are kept.
        return number.compute * (read + 3 * model.heads * work.length)
    return number.compute * read + _FLOAT32 * model.heads


def _mlp(model: Architecture, work: Work) -> float:
    number, family = work.numerics, model.family
    of_mlp = number.compute * model.mlp * (3 if family.is_gated else family.activation_tensors)
    if model.experts is None:
        return of_mlp
    of_experts = number.compute * model.experts.chosen * (2 * model.hidden + 4 * model.experts.width)
    share = model.experts.layers / model.layers
    return share * of_experts + (1 - share) * of_mlp


def _dropout(model: Architecture, work: Work) -> float:
    if not model.family.dropout:
        return 0.0
    return 2 * model.hidden * (work.numerics.residual if work.numerics.on_cpu else 1)
