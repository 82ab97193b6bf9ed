"""Converts a Hugging Face configuration to Megatron's, for models that both compute alike (see `compatibility`)."""

import torch
import torch.nn.functional as F  # noqa: N812
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from transformers import PretrainedConfig

from app.domain.spec.frameworks.megatron import Parallelism
from workers.trainers.megatron.layout import rank_position

# Fused kernels that are faster on a GPU and missing on a CPU.
_FUSIONS = (
    "gradient_accumulation_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "apply_rope_fusion",
    "persist_layer_norm",
)


def transformer_config(
    config: PretrainedConfig, layout: Parallelism, *, bf16: bool, recompute: bool
) -> TransformerConfig:
    """The configuration of a model that has passed `compatibility.check`."""
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
        # The mean is taken over all tokens of a step, however they are distributed over batches and ranks.
        calculate_per_token_loss=True,
        # The weights come from the base model. Megatron must still initialize them itself: only then it marks sharded
        # tensors and counts all of them in the gradient norm.
        use_cpu_initialization=True,
        init_method=_leave,
        output_layer_init_method=_leave,
        embedding_init_method=_leave,
        batch_p2p_comm=False,
        **dict.fromkeys(_FUSIONS, False),
        **(recomputing if recompute else {}),
    )


def gpt(config: PretrainedConfig, megatron: TransformerConfig, layout: Parallelism, vocabulary: int) -> GPTModel:
    """This rank's shard of a model with a vocabulary of that size; its weights are uninitialized."""
    rope = dict(config.rope_parameters)
    here = rank_position()
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
    """Rows of the embedding, padded to the same number per rank."""
    return -(-vocabulary // layout.tensor) * layout.tensor


def head_size(config: PretrainedConfig) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _leave(_tensor: torch.Tensor) -> None:
    """An initialization that does nothing."""
