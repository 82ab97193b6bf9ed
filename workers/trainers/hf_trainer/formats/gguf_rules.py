"""Which models a GGUF file can hold as they are, said before they are trained; needs neither torch nor gguf."""

import json
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

# Our model types → gguf's names of architectures.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
# How a byte-level tokenizer cuts text into words before its merges → the name that readers of GGUF know it by.
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUTS = {rf"{_LETTERS}\p{{N}}{_REST}": "qwen2", rf"{_LETTERS}\p{{N}}{{1,3}}{_REST}": "llama-bpe"}
_GPT2 = "gpt-2"


class NotGguf(ValueError):
    """Why a model can't be written as GGUF, and what can be."""


def check(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises NotGguf."""
    if config.model_type not in ARCHITECTURES:
        raise NotGguf(
            f"export_format gguf is for models of type {', '.join(ARCHITECTURES)}, and this one is a "
            f"{config.model_type}; say safetensors"
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
            raise NotGguf(f"export_format gguf can't say {what}, which this model has; say safetensors")
    words_of(tokenizer)


def parts_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What tokenizer.json says. Raises NotGguf for a tokenizer without one."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise NotGguf("export_format gguf needs a tokenizer with a tokenizer.json; say safetensors")
    found: dict[str, Any] = json.loads(backend.to_str())
    return found


def words_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """How the tokenizer cuts text into words, by GGUF's name. Raises NotGguf."""
    parts = parts_of(tokenizer)
    model, cutting = parts["model"], parts.get("pre_tokenizer") or {}
    steps = cutting.get("pretokenizers", [cutting])
    name = None
    by_bytes = steps[-1].get("type") == "ByteLevel" and not steps[-1].get("add_prefix_space")
    if by_bytes and model["type"] == "BPE" and not model.get("byte_fallback"):
        name = _GPT2 if len(steps) == 1 and steps[0].get("use_regex", True) else _named(steps)
    if name is None:
        raise NotGguf(
            "export_format gguf is for byte-level BPE tokenizers that cut words as GPT-2, Llama 3 or Qwen 2 do, and "
            "this one is another; say safetensors"
        )
    return name


def _named(steps: list[dict[str, Any]]) -> str | None:
    if len(steps) != 2 or steps[0].get("type") != "Split" or steps[1].get("use_regex", True):
        return None
    return _CUTS.get((steps[0].get("pattern") or {}).get("Regex", ""))
