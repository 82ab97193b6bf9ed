"""Loads the base model in the requested precision and resizes its embeddings to the tokenizer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.model import BaseModel
from workers.rank.run_context import RunSpec, method_of
from workers.rank.spec_sections import data_config
from workers.trainers.failures import InvalidConfig, ModelNotFound, is_out_of_memory
from workers.trainers.hf_trainer.model.scratch import configuration, draw_weights, is_from_scratch
from workers.trainers.hf_trainer.model.tokenizer import base_model, existing_model_path, load_tokenizer, trust_options

__all__ = [
    "Precision",
    "change_config",
    "disable_dropout",
    "load_model",
    "load_tokenizer",
    "precision",
    "resize",
    "without_dropout",
]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """`weights`: dtype of stored and updated parameters; `bf16`, `fp16`: dtype of computation on a GPU."""

    weights: torch.dtype
    bf16: bool = False
    fp16: bool = False
    note: str = ""  # message for the job's log


def _computes_bf16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def precision(spec: RunSpec, *, computes_bf16: Callable[[], bool] = _computes_bf16) -> Precision:
    """float32 weights unless the job requests bfloat16; a GPU computes in bfloat16 when it supports it natively.

    Weights are never float16, because most updates would round to nothing. A job that requests float16 gets float32
    weights and float16 computation.
    """
    asked = (base_model(spec).dtype or BaseModel.dtype).removeprefix("torch.")
    asked = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(asked, asked)
    if asked != "auto" and asked not in _DTYPES:
        raise InvalidConfig(f"base_model.dtype {asked!r} is not one of auto, {', '.join(_DTYPES)}")
    weights = torch.bfloat16 if asked == "bfloat16" else torch.float32
    if spec.device_type != "cuda":
        return Precision(weights)
    bf16 = asked in ("auto", "bfloat16") and computes_bf16()
    note = ""
    if asked == "auto" and not bf16:
        note = "this GPU has no bfloat16: computing in float32; base_model.dtype float16 would be faster"
    return Precision(weights, bf16=bf16, fp16=asked == "float16", note=note)


def load_model(spec: RunSpec, **how: Any) -> PreTrainedModel:
    """The base model (with a score head for a reward model), with `base_model.model_kwargs` applied.

    `how` is passed to `from_pretrained`.

    Raises ModelNotFound and InvalidConfig.
    """
    kwargs = dict(base_model(spec).model_kwargs)
    attention = kwargs.pop("attn_implementation", None)
    if is_from_scratch(spec):
        config = configuration(spec, load_tokenizer(spec))
        change_config(config, kwargs)
        return draw_weights(config, spec, dtype=precision(spec).weights, attn_implementation=attention)
    directory = existing_model_path(spec.model_path)
    name = Path(directory).name
    try:
        config = AutoConfig.from_pretrained(directory, **trust_options(spec))
        change_config(config, kwargs)
        return _loaded(directory, config, spec, attn_implementation=attention, **how)
    except (ImportError, KeyError, TypeError, ValueError) as error:
        if asked := sorted(base_model(spec).model_kwargs):
            raise InvalidConfig(f"{name} can't be loaded with model_kwargs {', '.join(asked)}: {error}") from error
        raise ModelNotFound(f"the base model in {name} can't be loaded: {error}") from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelNotFound(f"the base model in {name} can't be read: {error}") from error


def _loaded(directory: str, config: PretrainedConfig, spec: RunSpec, **how: Any) -> PreTrainedModel:
    kind: Any = AutoModelForCausalLM
    if method_of(spec) == REWARD_METHOD:
        kind = AutoModelForSequenceClassification
        config.num_labels = 1
        # A base model has no score head; the seed makes its initial weights equal on every rank and at every resume.
        set_seed(data_config(spec).seed)
    model: PreTrainedModel = kind.from_pretrained(
        directory, config=config, dtype=precision(spec).weights, **trust_options(spec), **how
    )
    return model


def change_config(config: PretrainedConfig, kwargs: dict[str, Any]) -> None:
    """Apply `base_model.model_kwargs`. Raises InvalidConfig."""
    text = config.get_text_config()
    for name, value in kwargs.items():
        if name == "rope_scaling":
            _change_rope(text, value)
        elif hasattr(text, name):
            setattr(text, name, value)
        else:
            raise InvalidConfig(f"model_kwargs: {name} is unknown to a model of type {config.model_type}; leave it out")


def _change_rope(config: PretrainedConfig, scaling: dict[str, Any]) -> None:
    """Add the requested scaling to the model's rotary embedding parameters and keep the other parameters."""
    known = getattr(config, "rope_parameters", None)
    if not isinstance(known, dict) or any(isinstance(value, dict) for value in known.values()):
        raise InvalidConfig(
            f"model_kwargs: rope_scaling can't be set for a model of type {config.model_type}; leave it out"
        )
    wanted = {"rope_type" if name == "type" else name: value for name, value in scaling.items()}
    config.rope_parameters = {**known, **wanted}


def resize(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, spec: RunSpec) -> bool:
    """Add an embedding for every token that has none; returns whether any were added.

    New rows are sampled from the distribution of the existing ones, with the job's seed.
    """
    # Not from the shape of the weight: a sharded weight may be empty on this rank.
    known = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    if len(tokenizer) <= known:
        return False
    set_seed(data_config(spec).seed)
    model.resize_token_embeddings(len(tokenizer))
    return True


def disable_dropout(model: PreTrainedModel) -> None:
    """Disables dropout modules and the dropout probability inside attention."""
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Disable dropout in submodules inside the block. The model itself stays in training mode, because trl uses that to
    tell its batches apart.
    """
    parts = [module for module in model.modules() if module is not model and module.training]
    for module in parts:
        module.training = False
    try:
        yield
    finally:
        for module in parts:
            module.training = True
