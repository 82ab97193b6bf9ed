"""Which models GGUF can represent, checked before training; needs neither torch nor gguf."""

import json
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

# model_type in transformers → architecture name in GGUF.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
# Pre-tokenizer pattern of a byte-level tokenizer → its GGUF name.
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PRE_TOKENIZERS = {rf"{_LETTERS}\p{{N}}{_REST}": "qwen2", rf"{_LETTERS}\p{{N}}{{1,3}}{_REST}": "llama-bpe"}
_GPT2 = "gpt-2"


class GgufUnsupported(ValueError):
    """The model cannot be written as GGUF; the message says which models can."""


def check(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises GgufUnsupported."""
    if config.model_type not in ARCHITECTURES:
        raise GgufUnsupported(
            f"export_format gguf supports models of type {', '.join(ARCHITECTURES)}, and this one is a "
            f"{config.model_type}; use safetensors"
        )
    rope = getattr(config, "rope_parameters", None) or {}
    odd = {
        "scaled rotary embeddings": rope.get("rope_type", "default") != "default",
        "biases of a llama's layers": bool(
            config.model_type == "llama"
            and (getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False))
        ),
        "an activation other than silu": getattr(config, "hidden_act", "silu") != "silu",
        "a sliding window": bool(getattr(config, "use_sliding_window", False)),
    }
    for what, is_so in odd.items():
        if is_so:
            raise GgufUnsupported(f"export_format gguf can't represent {what}, which this model has; use safetensors")
    pre_tokenizer(tokenizer)


def tokenizer_json(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The parsed tokenizer.json. Raises GgufUnsupported for a tokenizer without one."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise GgufUnsupported("export_format gguf needs a tokenizer with a tokenizer.json; use safetensors")
    found: dict[str, Any] = json.loads(backend.to_str())
    return found


def pre_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """The GGUF name of the tokenizer's pre-tokenizer. Raises GgufUnsupported."""
    parts = tokenizer_json(tokenizer)
    model, cutting = parts["model"], parts.get("pre_tokenizer") or {}
    steps = cutting.get("pretokenizers", [cutting])
    name = None
    by_bytes = steps[-1].get("type") == "ByteLevel" and not steps[-1].get("add_prefix_space")
    if by_bytes and model["type"] == "BPE" and not model.get("byte_fallback"):
        name = _GPT2 if len(steps) == 1 and steps[0].get("use_regex", True) else _named(steps)
    if name is None:
        raise GgufUnsupported(
            "export_format gguf supports byte-level BPE tokenizers with the pre-tokenizer of GPT-2, Llama 3 or Qwen 2, "
            "and this one differs; use safetensors"
        )
    return name


def _named(steps: list[dict[str, Any]]) -> str | None:
    if len(steps) != 2 or steps[0].get("type") != "Split" or steps[1].get("use_regex", True):
        return None
    return _PRE_TOKENIZERS.get((steps[0].get("pattern") or {}).get("Regex", ""))
