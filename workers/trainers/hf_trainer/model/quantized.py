"""Loads the base model with 4-bit linear weights (bitsandbytes) for QLoRA.

Dettmers et al., QLoRA: Efficient Finetuning of Quantized LLMs, 2023 (arXiv:2305.14314).
"""

import logging
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel

from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model import pretrained

# On a CPU bitsandbytes recommends a package of faster kernels in a message that reads like an error.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def load_quantized(spec: RunSpec) -> PreTrainedModel:
    """The base model with all linear layers except the head in 4 bits. Raises ModelNotFound and InvalidConfig."""
    values, precision = spec.hyperparameters, pretrained.precision(spec)
    compute = torch.bfloat16 if precision.bf16 else torch.float16 if precision.fp16 else precision.weights
    config = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type=values["bnb_4bit_quant_type"],
        bnb_4bit_use_double_quant=values["bnb_4bit_use_double_quant"],
        bnb_4bit_compute_dtype=compute,
    )
    # A quantized model cannot be moved, so it is loaded on its final device.
    device = torch.device("cuda", torch.cuda.current_device()) if spec.device_type == "cuda" else torch.device("cpu")
    model = pretrained.load_model(spec, quantization_config=config, device_map={"": device})
    if device.type == "cpu":
        _leave_weights_in_place(model)
    return model


def train_in_float32(model: nn.Module) -> None:
    """Keep adapter weights in float32: trl casts a new adapter on quantized weights to bfloat16, but not one loaded
    from a checkpoint.
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def _leave_weights_in_place(model: PreTrainedModel) -> None:
    """Stop bitsandbytes from repacking weights on a CPU with AVX512-BF16, which it does in the first forward pass
    without gradients.

    Repacked weights pass no gradients, and their outputs differ by bfloat16 rounding.
    """
    module: Any
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
