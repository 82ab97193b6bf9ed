"""The base model with its linear weights in 4 bits (bitsandbytes), as QLoRA trains an adapter on it.

Dettmers et al., QLoRA: Efficient Finetuning of Quantized LLMs, 2023 (arXiv:2305.14314).
"""

import logging
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PreTrainedModel

from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.model import pretrained

# On a CPU it asks for a package of faster kernels, in words that read like an error.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def load_quantized(spec: RunSpec) -> PreTrainedModel:
    """The base model, its linear layers but the head in 4 bits. Raises ModelNotFound and InvalidConfig."""
    values, precision = spec.hyperparameters, pretrained.precision(spec)
    compute = torch.bfloat16 if precision.bf16 else torch.float16 if precision.fp16 else precision.weights
    config = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type=values["bnb_4bit_quant_type"],
        bnb_4bit_use_double_quant=values["bnb_4bit_use_double_quant"],
        bnb_4bit_compute_dtype=compute,
    )
    # A quantized model can't be moved: it is loaded where it stays.
    device = torch.device("cuda", torch.cuda.current_device()) if spec.device_type == "cuda" else torch.device("cpu")
    model = pretrained.load_model(spec, quantization_config=config, device_map={"": device})
    if device.type == "cpu":
        _leave_weights_in_place(model)
    return model


def train_in_float32(model: Any) -> None:
    """A fresh adapter on quantized weights is rounded to bfloat16 by trl; one from a checkpoint would be in float32."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def _leave_weights_in_place(model: PreTrainedModel) -> None:
    """Where the CPU has AVX512-BF16, bitsandbytes repacks weights in the first forward pass that needs no gradient.

    From then on no gradient passes through them any more, and what they give differs by bfloat16's rounding.
    """
    module: Any
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
