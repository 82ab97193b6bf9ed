"""A Hugging Face model's configuration as Megatron's, for the architectures that both compute alike."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from transformers import PretrainedConfig

from app.domain.parallelism import PIPELINE, TENSOR, Parallelism
from workers.trainers.failures import InvalidConfig
from workers.trainers.megatron.layout import place

ARCHITECTURES = ("llama", "mistral", "qwen2")
# Megatron's own formula for Llama 3.1 has these built in.
_LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# The ways of training that save time on a GPU by kernels of their own, which a CPU has not.
_FUSIONS = (
    "gradient_accumulation_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "apply_rope_fusion",
    "persist_layer_norm",
)


def check(config: PretrainedConfig, layout: Parallelism, max_length: int) -> None:
    """Raises InvalidConfig for a model that Megatron would compute otherwise, or can't divide so."""
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


def transformer_config(
    config: PretrainedConfig, layout: Parallelism, *, bf16: bool, recompute: bool
) -> TransformerConfig:
    """Of a model that has passed `check`."""
    recomputing = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=head_size(config),
        normalization="RMSNorm",
        layernorm_epsilon=config.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=config.model_type == "qwen2",
        attention_dropout=config.attention_dropout,
        hidden_dropout=0.0,
        attention_softmax_in_fp32=True,
        bf16=bf16,
        params_dtype=torch.bfloat16 if bf16 else torch.float32,
        pipeline_dtype=torch.bfloat16 if bf16 else torch.float32,
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        # The mean is taken over all tokens of a step, however they are spread over batches and ranks.
        calculate_per_token_loss=True,
        # The weights come from the base model. Megatron must still believe it makes them: only then it marks what is
        # divided among ranks, and counts all of it in the norm of the gradients.
        use_cpu_initialization=True,
        init_method=_leave,
        output_layer_init_method=_leave,
        embedding_init_method=_leave,
        batch_p2p_comm=False,
        **dict.fromkeys(_FUSIONS, False),
        **(recomputing if recompute else {}),
    )


def gpt(config: PretrainedConfig, megatron: TransformerConfig, layout: Parallelism, vocabulary: int) -> GPTModel:
    """This rank's part of a model of that many tokens, its weights undefined."""
    rope = dict(config.rope_parameters)
    here = place()
    return GPTModel(
        megatron,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=padded(vocabulary, layout),
        max_sequence_length=config.max_position_embeddings,
        pre_process=here.is_first_stage,
        post_process=here.is_last_stage,
        position_embedding_type="rope",
        rotary_base=rope["rope_theta"],
        rope_scaling=rope.get("rope_type") == "llama3",
        rope_scaling_factor=rope.get("factor", 1.0),
        share_embeddings_and_output_weights=config.tie_word_embeddings,
    )


def padded(vocabulary: int, layout: Parallelism) -> int:
    """Rows of the embedding: as many for each rank."""
    return -(-vocabulary // layout.tensor) * layout.tensor


def head_size(config: PretrainedConfig) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _leave(_tensor: torch.Tensor) -> None:
    """An initialization that does nothing."""


def _differences(config: PretrainedConfig, max_length: int) -> list[str]:
    """What Megatron has no counterpart for."""
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
