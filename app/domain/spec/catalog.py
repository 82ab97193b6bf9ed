"""Catalog of training types for users: description, record shapes, export formats and hyperparameters."""

from collections.abc import Iterator
from typing import Any

from app.domain.spec.hyperparameters import parsing
from app.domain.spec.rules.output import export_formats

CHAT = '{"messages": [{"role", "content"}, …]}'
PAIR = '{"prompt", "completion"}'
PREFERENCE = '{"prompt", "chosen", "rejected"}'
CHAT_PREFERENCE = '{"chosen": [{"role", "content"}, …], "rejected": [{"role", "content"}, …]}'
TEXT = '{"text"}'
PROMPT = '{"prompt", …}'

# Training type → (what it does, shapes of its records).
_BUILT_IN: dict[str, tuple[str, tuple[str, ...]]] = {
    "SFT": ("Supervised fine-tuning of all weights: the model learns to answer as in the examples", (CHAT, PAIR, TEXT)),
    "FULL_FINETUNE": ("The same as SFT under the name that other systems use", (CHAT, PAIR, TEXT)),
    "LORA": ("Supervised fine-tuning of a small adapter; the base model stays as it is", (CHAT, PAIR, TEXT)),
    "QLORA": ("The same as LORA, with the base model in 4 bits: a quarter of the memory for it", (CHAT, PAIR, TEXT)),
    "DPO": (
        "Direct preference optimization of all weights or an adapter: of two answers one becomes likelier",
        (PREFERENCE, CHAT_PREFERENCE),
    ),
    "RLHF": (
        "Reinforcement learning of all weights or an adapter: completions become likelier by rewards; or their judge",
        (PROMPT, CHAT, PREFERENCE, CHAT_PREFERENCE),
    ),
    "CONTINUED_PRETRAIN": ("Continued pretraining: text joined by EOS and cut into blocks of max_seq_length", (TEXT,)),
}
_SCRIPT = "A script of your own, on the platform's devices, checkpoints and metrics"


def training_types(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Entries of GET /v1/training-types: every built-in pair, and ``names`` as training types of custom scripts."""
    for framework, name in parsing.TABLES:
        description, shapes = _BUILT_IN[name]
        yield {
            "training_type": name,
            "framework": framework,
            "description": description,
            "record_shapes": list(shapes),
            "export_formats": list(export_formats(framework, name)),
            "any_hyperparameter": False,
            "hyperparameters": parsing.describe(framework, name),
        }
    for name in names:
        yield {
            "training_type": name,
            "framework": parsing.CUSTOM,
            "description": _SCRIPT,
            "record_shapes": [],
            "export_formats": [],
            "any_hyperparameter": True,
            "hyperparameters": [],
        }
