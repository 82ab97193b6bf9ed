"""Converts weights of Llama-like models between Hugging Face's format and Megatron's per-rank shards.

Megatron fuses the query, key and value matrices group by group, and the gate with the up projection; it shards the
first matrix of a layer by rows and the last by columns (Shoeybi et al. 2019, section 3).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """The configuration values that determine how tensors are fused and sharded."""

    layers: int
    groups: int  # of heads that share a key and a value
    heads_per_group: int
    vocabulary: int
    tied: bool
    biased: bool  # query, key and value have a bias

    @classmethod
    def of(cls, config: PretrainedConfig, vocabulary: int) -> "Shape":
        return cls(
            layers=config.num_hidden_layers,
            groups=config.num_key_value_heads,
            heads_per_group=config.num_attention_heads // config.num_key_value_heads,
            vocabulary=vocabulary,
            tied=config.tie_word_embeddings,
            biased=config.model_type == "qwen2",
        )


@dataclass(frozen=True)
class TensorMapping:
    """One Megatron tensor and the Hugging Face tensors that it is made of."""

    megatron: str
    huggingface: tuple[str, ...]
    cut: str  # vocabulary, rows, columns, gate, heads, or none


def to_megatron(whole: Tensors, shape: Shape, rank: int, ranks: int, stage: range) -> dict[str, torch.Tensor]:
    """The shard of one of `ranks` tensor-parallel ranks for the layers in `stage`, numbered from 0 within the stage."""
    return {
        rule.megatron: _cut(rule.cut, [whole[name] for name in rule.huggingface], shape, ranks)[rank].contiguous()
        for rule in rules(shape, stage)
    }


def to_huggingface(shards: Sequence[Tensors], shape: Shape, stage: range) -> dict[str, torch.Tensor]:
    """The full tensors of a stage from the shards of all its tensor-parallel ranks, in order."""
    found: dict[str, torch.Tensor] = {}
    for rule in rules(shape, stage):
        found |= joined_by(rule, [shard[rule.megatron] for shard in shards], shape)
    return found


def joined_by(rule: TensorMapping, shards: list[torch.Tensor], shape: Shape) -> dict[str, torch.Tensor]:
    """The full tensors that one Megatron tensor is made of, from its shards in order."""
    return dict(zip(rule.huggingface, _joined(rule.cut, shards, shape), strict=True))


def rules(shape: Shape, stage: range) -> Iterator[TensorMapping]:
    """The mappings of a stage; with tied embeddings the last stage has a copy of the first one's."""
    if stage.start == 0:
        yield TensorMapping("embedding.word_embeddings.weight", ("model.embed_tokens.weight",), "vocabulary")
    for local, layer in enumerate(stage):
        yield from _of_layer(f"decoder.layers.{local}.", f"model.layers.{layer}.", biased=shape.biased)
    if stage.stop < shape.layers:
        return
    yield TensorMapping("decoder.final_layernorm.weight", ("model.norm.weight",), "")
    if not shape.tied:
        yield TensorMapping("output_layer.weight", ("lm_head.weight",), "vocabulary")
    elif stage.start > 0:
        yield TensorMapping("output_layer.weight", ("model.embed_tokens.weight",), "vocabulary")


def _of_layer(here: str, there: str, *, biased: bool) -> Iterator[TensorMapping]:
    attention = [f"{there}self_attn.{name}_proj" for name in "qkv"]
    yield TensorMapping(f"{here}input_layernorm.weight", (f"{there}input_layernorm.weight",), "")
    for kind in ("weight", "bias")[: 1 + biased]:
        yield TensorMapping(
            f"{here}self_attention.linear_qkv.{kind}", tuple(f"{name}.{kind}" for name in attention), "heads"
        )
    yield TensorMapping(f"{here}self_attention.linear_proj.weight", (f"{there}self_attn.o_proj.weight",), "columns")
    yield TensorMapping(f"{here}pre_mlp_layernorm.weight", (f"{there}post_attention_layernorm.weight",), "")
    gate = (f"{there}mlp.gate_proj.weight", f"{there}mlp.up_proj.weight")
    yield TensorMapping(f"{here}mlp.linear_fc1.weight", gate, "gate")
    yield TensorMapping(f"{here}mlp.linear_fc2.weight", (f"{there}mlp.down_proj.weight",), "columns")


def _cut(cut: str, parts: list[torch.Tensor], shape: Shape, ranks: int) -> Sequence[torch.Tensor]:
    """One tensor for each rank."""
    if cut == "vocabulary":
        rows = -(-shape.vocabulary // ranks) * ranks
        padding = parts[0].new_zeros(rows - len(parts[0]), *parts[0].shape[1:])
        return torch.cat([parts[0], padding]).chunk(ranks)
    if cut == "columns":
        return parts[0].chunk(ranks, dim=1)
    if cut == "gate":
        return [torch.cat(both) for both in zip(*(part.chunk(ranks) for part in parts), strict=True)]
    if cut == "heads":
        by_group = torch.cat([_grouped(part, shape.groups) for part in parts], dim=1)
        return [part.flatten(0, 1) for part in by_group.chunk(ranks)]
    return [parts[0]] * ranks


def _joined(cut: str, shards: list[torch.Tensor], shape: Shape) -> Sequence[torch.Tensor]:
    """The inverse of `_cut`."""
    if cut == "vocabulary":
        return [torch.cat(shards)[: shape.vocabulary]]
    if cut == "columns":
        return [torch.cat(shards, dim=1)]
    if cut == "gate":
        return [torch.cat(halves) for halves in zip(*(shard.chunk(2) for shard in shards), strict=True)]
    if cut == "heads":
        by_group = torch.cat([_grouped(shard, shape.groups // len(shards)) for shard in shards])
        size = by_group.shape[1] // (shape.heads_per_group + 2)
        sizes = [size * shape.heads_per_group, size, size]
        return [part.flatten(0, 1) for part in torch.split(by_group, sizes, dim=1)]
    return [shards[0]]


def _grouped(tensor: torch.Tensor, groups: int) -> torch.Tensor:
    """Rows by head group; a bias has no columns."""
    return tensor.reshape(groups, -1, *tensor.shape[1:])
