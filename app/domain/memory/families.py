"""How the models of each type are built: which modules a layer has, by the names and forms of transformers 5."""

from dataclasses import dataclass
from typing import Literal

_QKV = (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"))
_GATED = (("gate_proj", 1), ("up_proj", 1))


@dataclass(frozen=True, kw_only=True)
class Family:
    """The parts of a layer; the defaults are Llama's."""

    reads: tuple[tuple[str, str], ...] = _QKV  # projections of the layer's input, and what each makes
    out: str = "o_proj"
    up: tuple[tuple[str, int], ...] = _GATED  # and how many times the MLP's width each makes
    down: str = "down_proj"
    norm: Literal["rms", "float_rms", "layer"] = "rms"  # float_rms: its weight is multiplied in float32, too
    norms: int = 2
    head_norms: bool = False  # norms of queries and keys, for each head
    bias_field: str = "attention_bias"
    bias: bool = False
    input_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    tied: bool = False
    head_size: int = 0  # if the configuration has none; 0: hidden size by heads
    positions: int | None = None  # rows of learned position embeddings beyond the configured number
    mlp_is_known: bool = False  # four times the hidden size, unless the configuration says otherwise
    activation_tensors: int = 2  # that the activation function and the product keep, of the MLP's width
    attention: str = "sdpa"
    dropout: float = 0.0  # of embeddings and outputs of a layer, if the configuration has no other
    attention_dropout: float = 0.0
    is_known: bool = True

    @property
    def is_gated(self) -> bool:
        return sum(times for _, times in self.up) == 2


GENERIC = Family(is_known=False)
_GEMMA = Family(tied=True, head_size=256, norm="float_rms")
_OF_LAYER_NORM = Family(norm="layer", bias_field="", bias=True, mlp_bias=True, mlp_is_known=True)


def _changed(family: Family, **values: object) -> Family:
    return Family(**{**vars(family), **values})


FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(bias_field=""),
    "mixtral": Family(bias_field=""),
    "qwen2": Family(bias_field="", input_bias=True),
    "qwen3": Family(head_norms=True),
    "qwen3_moe": Family(head_norms=True),
    "gemma": _GEMMA,
    "gemma2": _changed(_GEMMA, norms=4, attention="eager"),
    "gemma3_text": _changed(_GEMMA, norms=4, head_norms=True),
    "phi3": Family(reads=(("qkv_proj", "qkv"),), up=(("gate_up_proj", 2),), bias_field=""),
    "phi": _changed(_OF_LAYER_NORM, norms=1, out="dense", up=(("fc1", 1),), down="fc2", head_bias=True),
    "gpt2": _changed(
        _OF_LAYER_NORM,
        reads=(("c_attn", "qkv"),),
        out="c_proj",
        up=(("c_fc", 1),),
        down="mlp.c_proj",
        tied=True,
        positions=0,
        activation_tensors=4,
        attention_dropout=0.1,
        dropout=0.1,
    ),
    "gpt_neox": _changed(
        _OF_LAYER_NORM,
        reads=(("query_key_value", "qkv"),),
        out="dense",
        bias_field="attention_bias",
        up=(("dense_h_to_4h", 1),),
        down="dense_4h_to_h",
    ),
    "opt": _changed(_OF_LAYER_NORM, out="out_proj", up=(("fc1", 1),), down="fc2", tied=True, positions=2, dropout=0.1),
}
