"""A model's dimensions and its weights, layer by layer, from the content of its config.json."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.domain.memory.families import FAMILIES, GENERIC, Family

# Larger numbers of a configuration are mistakes.
_MOST, _MOST_LAYERS, _MOST_PARAMETERS = 2**31, 10_000, 2**50


class UnknownArchitecture(Exception):
    """The configuration does not say how large the model is; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A linear module of a layer; modules of one ``source`` read the same tensor."""

    name: str
    inputs: int
    outputs: int
    source: Literal["attention", "context", "mlp", "product"]
    bias: bool = False

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs + (self.outputs if self.bias else 0)


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The experts of a mixture layer, stored as one tensor for each projection, and their router."""

    count: int
    chosen: int  # for each token
    width: int
    layers: int  # that have them; the others have an MLP

    def parameters(self, hidden: int) -> int:
        return self.count * (3 * hidden * self.width + hidden)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The dimensions of a decoder; all counts are of parameters, not of bytes."""

    family: Family
    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    tied: bool
    linears: tuple[Linear, ...]  # of a layer
    mlp_layers: int  # layers that have the linears of the MLP
    experts: Experts | None
    norms: int  # of the norms of a layer
    drops_attention: bool
    other: int  # position embeddings, projections, the norm before the head, its bias

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, those of tied embeddings once."""
        return self.in_layers + self.embedding * (1 if self.tied else 2) + self.other

    @property
    def in_layers(self) -> int:
        return self.in_linears + self.in_experts + self.layers * self.norms

    @property
    def in_linears(self) -> int:
        return sum(linear.parameters * times for linear, times in self.all_linears())

    @property
    def in_experts(self) -> int:
        return self.experts.parameters(self.hidden) * self.experts.layers if self.experts else 0

    @property
    def largest_layer(self) -> int:
        experts = self.experts.parameters(self.hidden) if self.experts else 0
        return self.norms + max(sum(linear.parameters for linear in self.linears), self._attention + experts)

    @property
    def _attention(self) -> int:
        return sum(each.parameters for each in self.linears if each.source in ("attention", "context"))

    def all_linears(self) -> Iterator[tuple[Linear, int]]:
        """Each linear of a layer, and how many layers have it."""
        for linear in self.linears:
            yield linear, self.mlp_layers if linear.source in ("mlp", "product") else self.layers


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """Raises UnknownArchitecture."""
    values = _Values(_text_config(config))
    kind = values.model_type
    family = FAMILIES.get(kind, GENERIC)
    hidden, heads = values.whole(*_HIDDEN), values.whole(*_HEADS)
    layers = values.whole(*_LAYERS, most=_MOST_LAYERS)
    kv_heads = values.whole("num_key_value_heads", default=heads)
    head_size = values.whole("head_dim", default=family.head_size or max(1, hidden // heads))
    mlp = values.whole("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden if family.mlp_is_known else None)
    vocabulary = values.whole("vocab_size")
    _refuse_what_is_not_counted(values, family, kind)
    experts = _experts(values, layers, mlp)
    shape = _Shape(hidden, heads * head_size, kv_heads * head_size, mlp)
    found = Architecture(
        family=family,
        model_type=kind,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        mlp=mlp,
        vocabulary=vocabulary,
        tied=values.flag("tie_word_embeddings", default=family.tied),
        linears=tuple(_linears(values, family, shape)),
        mlp_layers=layers - (experts.layers if experts else 0),
        experts=experts,
        norms=_norms(family, hidden, head_size),
        drops_attention=bool(values.share("attention_dropout", "attn_pdrop", default=family.attention_dropout)),
        other=_other(values, family, hidden, vocabulary),
    )
    if found.parameters > _MOST_PARAMETERS:
        raise UnknownArchitecture(f"the configuration of this {kind} has more than {_MOST_PARAMETERS} parameters")
    return found


_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_HEADS = ("num_attention_heads", "n_head")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
# How GPTQ, AWQ, bitsandbytes, fp8 and others, older compressed-tensors, and MLX say how weights are stored.
_QUANTIZED = ("quantization_config", "compression_config", "quantization")
_VISION = ("vision_config", "audio_config", "vision_tower")


@dataclass(frozen=True)
class _Shape:
    hidden: int
    attention: int
    kv: int
    mlp: int


class _Values:
    """The fields of a configuration, with their types checked."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        kind = config.get("model_type")
        if not isinstance(kind, str) or not kind:
            raise UnknownArchitecture("the model's configuration names no model_type")
        self.model_type = kind[:80]

    def whole(self, *names: str, default: int | None = None, most: int = _MOST) -> int:
        """The first of these fields that is given. Raises UnknownArchitecture."""
        value = next((self._config[name] for name in names if self._config.get(name) is not None), default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise UnknownArchitecture(f"the configuration of this {self.model_type} has no usable {names[0]}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._config.get(name)
        return value if isinstance(value, bool) else default

    def share(self, *names: str, default: float) -> float:
        """The first of these fields that is a number."""
        found = (value for name in names if isinstance(value := self._config.get(name), int | float))
        return next(found, default)

    def numbers(self, name: str) -> set[int]:
        """Of a list of whole numbers, which may be missing. Raises UnknownArchitecture."""
        value = self._config.get(name) or []
        is_list = isinstance(value, list) and len(value) <= _MOST_LAYERS
        if not is_list or not all(isinstance(each, int) for each in value):
            raise UnknownArchitecture(f"the configuration of this {self.model_type} has no usable {name}")
        return set(value)

    def get(self, name: str) -> object:
        return self._config.get(name)

    def first(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self._config.get(name)), None)


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    if vision := next((name for name in _VISION if config.get(name)), None):
        raise UnknownArchitecture(f"the model has a {vision}, and parts that do not read text are not counted")
    if config.get("is_encoder_decoder"):
        raise UnknownArchitecture("encoder-decoder models are not counted")
    nested = config.get("text_config")
    found = nested if isinstance(nested, Mapping) else config
    if any(each.get(name) is not None for name in _QUANTIZED for each in (config, found)):
        raise UnknownArchitecture("the model's weights are quantized already, and how they are stored is not counted")
    return found


def _refuse_what_is_not_counted(values: _Values, family: Family, kind: str) -> None:
    """Unknown types are counted as Llama's unless a field says that they are not built so."""
    if family is not GENERIC:
        return
    for name in ("state_size", "ssm_cfg", "kv_lora_rank", "q_lora_rank", "layer_types_moe", "n_shared_experts"):
        if values.get(name):
            raise UnknownArchitecture(f"models of type {kind} have parts ({name}) that are not counted")
    if values.first(_EXPERTS) or values.get("alibi") or values.get("new_decoder_architecture") is not None:
        raise UnknownArchitecture(f"how models of type {kind} are built is not known")


def _experts(values: _Values, layers: int, mlp: int) -> Experts | None:
    name = values.first(_EXPERTS)
    if name is None:
        return None
    step = values.whole("decoder_sparse_step", default=1)
    dense = [layer for layer in values.numbers("mlp_only_layers") if 0 <= layer < layers and (layer + 1) % step == 0]
    having = layers // step - len(dense)
    width = values.whole("moe_intermediate_size", default=mlp)
    return Experts(count=values.whole(name), chosen=values.whole("num_experts_per_tok"), width=width, layers=having)


def _linears(values: _Values, family: Family, shape: _Shape) -> Iterator[Linear]:
    """Projections of attention, then of the MLP; a fused one reads once for all its outputs."""
    bias = values.flag(family.bias_field, default=family.bias) if family.bias_field else family.bias
    input_bias = bias or family.input_bias
    read = {"q": shape.attention, "k": shape.kv, "v": shape.kv, "qkv": shape.attention + 2 * shape.kv}
    for name, part in family.reads:
        yield Linear(name=name, inputs=shape.hidden, outputs=read[part], source="attention", bias=input_bias)
    yield Linear(name=family.out, inputs=shape.attention, outputs=shape.hidden, source="context", bias=bias)
    mlp_bias = values.flag("mlp_bias", default=family.mlp_bias)
    for name, times in family.up:
        yield Linear(name=name, inputs=shape.hidden, outputs=times * shape.mlp, source="mlp", bias=mlp_bias)
    yield Linear(name=family.down, inputs=shape.mlp, outputs=shape.hidden, source="product", bias=mlp_bias)


def _norms(family: Family, hidden: int, head_size: int) -> int:
    of_one = 2 if family.norm == "layer" else 1
    return family.norms * of_one * hidden + (2 * head_size if family.head_norms else 0)


def _other(values: _Values, family: Family, hidden: int, vocabulary: int) -> int:
    found = (2 if family.norm == "layer" else 1) * hidden
    if family.positions is not None:
        found += hidden * (values.whole("max_position_embeddings", "n_positions") + family.positions)
    return found + (vocabulary if family.head_bias else 0)
