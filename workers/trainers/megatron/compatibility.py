"""Checks whether Megatron can train a model with the requested parallelism; needs no megatron-core, so that it is
fast.
"""

from typing import Any

from transformers import PretrainedConfig

from app.domain.spec.frameworks.megatron import PIPELINE, TENSOR, InvalidParallelism, Parallelism, parallelism
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import training_config
from workers.trainers.failures import InvalidConfig

ARCHITECTURES = ("llama", "mistral", "qwen2")
# Megatron hard-codes these for Llama 3.1.
_LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def requested_layout(spec: RunSpec) -> Parallelism:
    """The job's requested parallelism. Raises InvalidConfig."""
    framework = training_config(spec).framework
    try:
        return parallelism(framework.config, spec.world_size)
    except InvalidParallelism as error:
        raise InvalidConfig(f"training_config.framework.config: {error.message}") from error


def check(config: PretrainedConfig, layout: Parallelism, max_length: int) -> None:
    """Raises InvalidConfig for a model that Megatron computes differently, or cannot shard this way."""
    if config.model_type not in ARCHITECTURES:
        raise InvalidConfig(
            f"MEGATRON knows no models of type {config.model_type}, only {', '.join(ARCHITECTURES)}: "
            "choose one of those, or framework HF_TRAINER"
        )
    for reason in _differences(config, max_length):
        raise InvalidConfig(f"MEGATRON can't compute this model: {reason}; use framework HF_TRAINER")
    for what, count, option, parts in (
        ("num_attention_heads", config.num_attention_heads, TENSOR, layout.tensor),
        ("num_key_value_heads", config.num_key_value_heads, TENSOR, layout.tensor),
        ("intermediate_size", config.intermediate_size, TENSOR, layout.tensor),
        ("num_hidden_layers", config.num_hidden_layers, PIPELINE, layout.pipeline),
    ):
        if count % parts:
            raise InvalidConfig(
                f"training_config.framework.config.{option} is {parts}, but must divide the model's {what}, which is "
                f"{count}; choose a divisor"
            )


def _differences(config: PretrainedConfig, max_length: int) -> list[str]:
    """Features of the configuration that Megatron lacks."""
    rope: dict[str, Any] = dict(config.rope_parameters or {})
    kind = rope.get("rope_type", "default")
    window: Any = getattr(config, "sliding_window", None)
    found = {
        f"hidden_act is {config.hidden_act}, not silu": config.hidden_act != "silu",
        "attention_bias is set": bool(getattr(config, "attention_bias", False)),
        "mlp_bias is set": bool(getattr(config, "mlp_bias", False)),
        "it is quantized": getattr(config, "quantization_config", None) is not None,
        f"sliding_window {window} is shorter than data_config.max_seq_length {max_length}": bool(window)
        and int(window) < max_length,
        f"rope_type {kind} is unknown to it": kind not in ("default", "llama3"),
        "its rope_parameters are not those of Llama 3.1": kind == "llama3"
        and any(rope.get(name) != value for name, value in _LLAMA3_ROPE.items()),
    }
    return [reason for reason, differs in found.items() if differs]
