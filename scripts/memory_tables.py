"""The tables of docs/reference/memory.md: well-known recipes with their estimates, and types of models."""

from typing import Any, NamedTuple

from app.domain.memory.estimate import estimate
from app.domain.memory.families import FAMILIES
from app.domain.memory.known_models import known_config, known_models
from app.domain.spec.model import JobDocument

_GB = 2**30
_CARDS = (24, 48, 80)
_CHECKPOINTING = {"gradient_checkpointing": "true"}
_PARTS = ("weights", "gradients", "optimizer", "activations")


class _Recipe(NamedTuple):
    words: str
    model: str
    training_type: str
    devices: int = 1
    framework: str = "HF_TRAINER"
    dtype: str = "bfloat16"
    config: dict[str, str] = {}  # noqa: RUF012  never changed
    hyperparameters: dict[str, str] = {}  # noqa: RUF012


_8B, _70B = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
_RECIPES = (
    _Recipe("8B, all weights, float32", _8B, "SFT", dtype="auto"),
    _Recipe("8B, all weights, bfloat16", _8B, "SFT"),
    _Recipe("8B, all weights, bfloat16, Adafactor", _8B, "SFT", hyperparameters={"optim": "adafactor"}),
    _Recipe("8B, LORA, float32", _8B, "LORA", dtype="auto"),
    _Recipe("8B, LORA, bfloat16", _8B, "LORA"),
    _Recipe("8B, QLORA, bfloat16", _8B, "QLORA"),
    _Recipe("8B, DPO, all weights, bfloat16", _8B, "DPO"),
    _Recipe("8B, DPO, adapter, bfloat16", _8B, "DPO", hyperparameters={"use_lora": "true"}),
    _Recipe("8B, all weights, FSDP on 8", _8B, "SFT", 8, "FSDP", "auto"),
    _Recipe("8B, all weights, ZeRO 3 on 8", _8B, "SFT", 8, "DEEPSPEED", "auto", {"zero_stage": "3"}),
    _Recipe("8B, all weights, Megatron, tensor 4 of 8", _8B, "SFT", 8, "MEGATRON", "auto", {"tensor_parallel": "4"}),
    _Recipe("70B, QLORA, bfloat16", _70B, "QLORA"),
    _Recipe("70B, LORA, FSDP on 8, bfloat16", _70B, "LORA", 8, "FSDP"),
    _Recipe("70B, all weights, FSDP on 8", _70B, "SFT", 8, "FSDP", "auto"),
    _Recipe(
        "70B, all weights, ZeRO 3 with offloading on 8",
        *(_70B, "SFT", 8, "DEEPSPEED", "auto"),
        {"zero_stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"},
    ),
)


def recipes() -> str:
    """Each recipe with its parts in GB, and the cards that it fits on."""
    lines = [
        f"| Llama 3.1, 1 record of 2048 tokens | {' | '.join(_PARTS)} | other | all | fits on |",
        "|---|" + "--:|" * (len(_PARTS) + 2) + "---|",
    ]
    for recipe in _RECIPES:
        found = estimate(_document(recipe), known_config(recipe.model) or {}, device_count=recipe.devices)
        parts = [found.parts.get(name, 0) for name in _PARTS]
        total = found.total_bytes
        fits = ", ".join(f"{card} GB" for card in _CARDS if total <= card * _GB) or "–"
        numbers = " | ".join(f"{size / _GB:.1f}" for size in (*parts, total - sum(parts), total))
        lines.append(f"| {recipe.words} | {numbers} | {fits} |")
    return "\n".join(lines)


def model_types() -> str:
    """The types that are counted exactly, and the models whose configurations are known."""
    types = ", ".join(f"`{name}`" for name in FAMILIES)
    models = ", ".join(f"`{name}`" for name in known_models())
    return f"- types of models: {types}\n- configurations known without a file: {models}"


def _document(recipe: _Recipe) -> JobDocument:
    training: dict[str, Any] = {
        "training_type": recipe.training_type,
        "framework": {"type": recipe.framework, "config": recipe.config},
        "base_model": {"model_id": recipe.model, "dtype": recipe.dtype},
        "hyperparameters": {**_CHECKPOINTING, **recipe.hyperparameters},
    }
    data = {"batch_size": 1, "max_seq_length": 2048, "sources": []}
    return JobDocument.from_json(
        {"name": "recipe", "training_config": training, "data_config": data, "resource_config": {"device_type": "cuda"}}
    )
