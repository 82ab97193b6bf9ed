"""Configurations of well-known models of Hugging Face's hub, from their public config.json files."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

_FIELDS = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "vocab_size"),
)
# Type and tied embeddings, then for each size: ids without their suffixes, and the fields above.
_Sizes = tuple[tuple[str, tuple[int, ...]], ...]
_GROUPS: tuple[tuple[str, bool, _Sizes], ...] = (
    (
        "llama",
        False,
        (
            (
                "meta-llama/Meta-Llama-3-8B meta-llama/Meta-Llama-3.1-8B meta-llama/Llama-3.1-8B",
                (4096, 14336, 32, 32, 8, 128, 128256),
            ),
            (
                "meta-llama/Meta-Llama-3-70B meta-llama/Meta-Llama-3.1-70B meta-llama/Llama-3.1-70B",
                (8192, 28672, 80, 64, 8, 128, 128256),
            ),
            ("meta-llama/Llama-3.3-70B", (8192, 28672, 80, 64, 8, 128, 128256)),
            ("meta-llama/Meta-Llama-3.1-405B meta-llama/Llama-3.1-405B", (16384, 53248, 126, 128, 8, 128, 128256)),
            ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", (2048, 5632, 22, 32, 4, 64, 32000)),
        ),
    ),
    (
        "llama",
        True,
        (
            ("meta-llama/Llama-3.2-1B", (2048, 8192, 16, 32, 8, 64, 128256)),
            ("meta-llama/Llama-3.2-3B", (3072, 8192, 28, 24, 8, 128, 128256)),
            ("HuggingFaceTB/SmolLM2-135M", (576, 1536, 30, 9, 3, 64, 49152)),
            ("HuggingFaceTB/SmolLM2-360M", (960, 2560, 32, 15, 5, 64, 49152)),
            ("HuggingFaceTB/SmolLM2-1.7B", (2048, 8192, 24, 32, 32, 64, 49152)),
        ),
    ),
    (
        "qwen2",
        True,
        (
            ("Qwen/Qwen2.5-0.5B", (896, 4864, 24, 14, 2, 64, 151936)),
            ("Qwen/Qwen2.5-1.5B", (1536, 8960, 28, 12, 2, 128, 151936)),
            ("Qwen/Qwen2.5-3B", (2048, 11008, 36, 16, 2, 128, 151936)),
        ),
    ),
    (
        "qwen2",
        False,
        (
            ("Qwen/Qwen2.5-7B", (3584, 18944, 28, 28, 4, 128, 152064)),
            ("Qwen/Qwen2.5-14B", (5120, 13824, 48, 40, 8, 128, 152064)),
            ("Qwen/Qwen2.5-32B", (5120, 27648, 64, 40, 8, 128, 152064)),
            ("Qwen/Qwen2.5-72B", (8192, 29568, 80, 64, 8, 128, 152064)),
        ),
    ),
    (
        "qwen3",
        True,
        (
            ("Qwen/Qwen3-0.6B", (1024, 3072, 28, 16, 8, 128, 151936)),
            ("Qwen/Qwen3-1.7B", (2048, 6144, 28, 16, 8, 128, 151936)),
            ("Qwen/Qwen3-4B", (2560, 9728, 36, 32, 8, 128, 151936)),
        ),
    ),
    (
        "qwen3",
        False,
        (
            ("Qwen/Qwen3-8B", (4096, 12288, 36, 32, 8, 128, 151936)),
            ("Qwen/Qwen3-14B", (5120, 17408, 40, 40, 8, 128, 151936)),
            ("Qwen/Qwen3-32B", (5120, 25600, 64, 64, 8, 128, 151936)),
        ),
    ),
    (
        "mistral",
        False,
        (
            ("mistralai/Mistral-7B-v0.1", (4096, 14336, 32, 32, 8, 128, 32000)),
            ("mistralai/Mistral-7B-v0.3", (4096, 14336, 32, 32, 8, 128, 32768)),
            (
                "mistralai/Mistral-Nemo-Base-2407 mistralai/Mistral-Nemo-Instruct-2407",
                (5120, 14336, 40, 32, 8, 128, 131072),
            ),
            (
                "mistralai/Mistral-Small-24B-Base-2501 mistralai/Mistral-Small-24B-Instruct-2501",
                (5120, 32768, 40, 32, 8, 128, 131072),
            ),
        ),
    ),
    (
        "gemma",
        True,
        (
            ("google/gemma-2b", (2048, 16384, 18, 8, 1, 256, 256000)),
            ("google/gemma-7b", (3072, 24576, 28, 16, 16, 256, 256000)),
        ),
    ),
    (
        "gemma2",
        True,
        (
            ("google/gemma-2-2b", (2304, 9216, 26, 8, 4, 256, 256000)),
            ("google/gemma-2-9b", (3584, 14336, 42, 16, 8, 256, 256000)),
            ("google/gemma-2-27b", (4608, 36864, 46, 32, 16, 128, 256000)),
        ),
    ),
    ("gemma3_text", True, (("google/gemma-3-1b", (1152, 6912, 26, 4, 1, 256, 262144)),)),
    (
        "phi3",
        False,
        (
            (
                "microsoft/Phi-3-mini-4k-instruct microsoft/Phi-3-mini-128k-instruct microsoft/Phi-3.5-mini-instruct",
                (3072, 8192, 32, 32, 32, 96, 32064),
            ),
            ("microsoft/Phi-3-medium-4k-instruct", (5120, 17920, 40, 40, 10, 128, 32064)),
            ("microsoft/phi-4", (5120, 17920, 40, 40, 10, 128, 100352)),
        ),
    ),
    ("phi3", True, (("microsoft/Phi-4-mini-instruct", (3072, 8192, 32, 24, 8, 128, 200064)),)),
    ("phi", False, (("microsoft/phi-2", (2560, 10240, 32, 32, 32, 80, 51200)),)),
)
_MIXTURES: tuple[tuple[str, Mapping[str, Any], tuple[int, ...]], ...] = (
    (
        "mistralai/Mixtral-8x7B-v0.1",
        {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
        (4096, 14336, 32, 32, 8, 128, 32000),
    ),
    (
        "Qwen/Qwen3-30B-A3B",
        {"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        (2048, 6144, 48, 32, 4, 128, 151936),
    ),
)
# Suffixes of tuned models, which have the configuration of their base.
_TUNED = ("-instruct", "-it", "-pt", "-base", "-chat")


def known_config(model_id: str) -> Mapping[str, Any] | None:
    """The configuration of a hub id, or of the model that it is a tuned one of; None for others."""
    name = model_id.lower()
    found = _KNOWN.get(name)
    for suffix in _TUNED:
        if found is None and name.endswith(suffix):
            found = _KNOWN.get(name.removesuffix(suffix))
        if found is None and f"{suffix}-v" in name:
            found = _KNOWN.get(name.replace(suffix, "", 1))
    return found


def known_models() -> tuple[str, ...]:
    """All ids, in lower case."""
    return tuple(_KNOWN)


def _all() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind, tied, sizes in _GROUPS:
        for ids, numbers in sizes:
            values = {"model_type": kind, "tie_word_embeddings": tied, **dict(zip(_FIELDS, numbers, strict=True))}
            yield from ((each.lower(), MappingProxyType(values)) for each in ids.split())
    for each, more, numbers in _MIXTURES:
        values = {**more, "tie_word_embeddings": False, **dict(zip(_FIELDS, numbers, strict=True))}
        yield each.lower(), MappingProxyType(values)


_KNOWN = dict(_all())
