"""Reads the weights of a checkpoint that Megatron has divided, under the names of Hugging Face's model, one by one."""

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import AutoConfig, PretrainedConfig

from workers.trainers.megatron.weights import Shape, joined_by, rules
from workers.trainers.stored_tensors import StoredTensors

_MODEL = "model."
# Norms are stored as parts of the layers behind them, as which other implementations of Megatron's have them.
_NORMS = {
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_",
}
_LAYER = re.compile(r"(.*\.layers)\.(\d+)(\..*)")


def whole_weights(checkpoint: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Each weight with its name. Raises what torch raises for damaged files."""
    config: PretrainedConfig = AutoConfig.from_pretrained(checkpoint)
    stored, shape = StoredTensors(checkpoint), Shape.of(config, config.vocab_size)
    for rule in rules(shape, range(shape.layers)):
        joined = joined_by(rule, [_stored(stored, f"{_MODEL}{rule.megatron}")], shape)
        yield from ((name, tensor.clone()) for name, tensor in joined.items())  # of one Megatron tensor, they overlap


def _stored(stored: StoredTensors, name: str) -> torch.Tensor:
    """Layers of one form are rows of one tensor."""
    for own, there in _NORMS.items():
        name = name.replace(own, there)
    of_layer = _LAYER.fullmatch(name)
    if of_layer is None:
        return stored.whole(name)
    before, number, after = of_layer.groups()
    return stored.row(f"{before}{after}", int(number))
