"""The base model, loaded in the precision the job asks for and as large as its tokenizer."""

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
from workers.rank.run_context import RunSpec, method_of
from workers.trainers.data.sources import seed_of
from workers.trainers.failures import InvalidConfig, ModelNotFound, lacked_memory
from workers.trainers.hf_trainer.model.scratch import configuration, draw, is_from_scratch
from workers.trainers.hf_trainer.model.tokenizer import base_model, existing, load_tokenizer, trust

__all__ = ["Precision", "leave_out_dropout", "load_model", "load_tokenizer", "precision", "resize", "without_dropout"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """`weights`: what parameters are kept and updated in; `bf16`, `fp16`: what is computed in on a GPU."""

    weights: torch.dtype
    bf16: bool = False
    fp16: bool = False
    note: str = ""  # what the job's log should say about it


def _computes_bf16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def precision(spec: RunSpec, *, computes_bf16: Callable[[], bool] = _computes_bf16) -> Precision:
    """float32 weights unless the job says bfloat16; a GPU computes in bfloat16 where it can without emulating it.

    Weights are never float16: an update of them would mostly round to nothing. A job that says
    float16 gets float32 weights and float16 computation.
    """
    asked = str(base_model(spec).get("dtype") or "auto").removeprefix("torch.")
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
    """The base model, for a reward model with a head that scores, and with `base_model.model_kwargs` applied.

    `how` is passed on to `from_pretrained`.

    Raises ModelNotFound and InvalidConfig.
    """
    kwargs = dict(base_model(spec).get("model_kwargs") or {})
    attention = kwargs.pop("attn_implementation", None)
    if is_from_scratch(spec):
        config = configuration(spec, load_tokenizer(spec))
        _change(config, kwargs)
        return draw(config, spec, dtype=precision(spec).weights, attn_implementation=attention)
    directory = existing(spec.model_path)
    name = Path(directory).name
    try:
        config = AutoConfig.from_pretrained(directory, **trust(spec))
        _change(config, kwargs)
        return _loaded(directory, config, spec, attn_implementation=attention, **how)
    except (ImportError, KeyError, TypeError, ValueError) as error:
        if asked := sorted(base_model(spec).get("model_kwargs") or {}):
            raise InvalidConfig(f"{name} can't be loaded with model_kwargs {', '.join(asked)}: {error}") from error
        raise ModelNotFound(f"the base model in {name} can't be loaded: {error}") from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if lacked_memory(error):
            raise
        raise ModelNotFound(f"the base model in {name} can't be read: {error}") from error


def _loaded(directory: str, config: PretrainedConfig, spec: RunSpec, **how: Any) -> PreTrainedModel:
    kind: Any = AutoModelForCausalLM
    if method_of(spec) == REWARD_METHOD:
        kind = AutoModelForSequenceClassification
        config.num_labels = 1
        # A base model has no head that scores: it is drawn, on every rank and at every resume the same.
        set_seed(seed_of(spec.data_config))
    model: PreTrainedModel = kind.from_pretrained(
        directory, config=config, dtype=precision(spec).weights, **trust(spec), **how
    )
    return model


def _change(config: PretrainedConfig, kwargs: dict[str, Any]) -> None:
    text = config.get_text_config()
    for name, value in kwargs.items():
        if name == "rope_scaling":
            _change_rope(text, value)
        elif hasattr(text, name):
            setattr(text, name, value)
        else:
            raise InvalidConfig(f"model_kwargs: {name} is unknown to a model of type {config.model_type}; leave it out")


def _change_rope(config: PretrainedConfig, scaling: dict[str, Any]) -> None:
    """The scaling beside what else the model says of its rotary embeddings, which it can't do without."""
    known = getattr(config, "rope_parameters", None)
    if not isinstance(known, dict) or any(isinstance(value, dict) for value in known.values()):
        raise InvalidConfig(
            f"model_kwargs: rope_scaling can't be set for a model of type {config.model_type}; leave it out"
        )
    wanted = {"rope_type" if name == "type" else name: value for name, value in scaling.items()}
    config.rope_parameters = {**known, **wanted}


def resize(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, spec: RunSpec) -> bool:
    """Give every token of the tokenizer an embedding; whether there were any without one.

    The new rows are drawn from the distribution of the old ones, by the job's seed.
    """
    # Not by the shape of its weight: of one that is divided among ranks nothing may be here.
    known = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    if len(tokenizer) <= known:
        return False
    set_seed(seed_of(spec.data_config))
    model.resize_token_embeddings(len(tokenizer))
    return True


def leave_out_dropout(model: PreTrainedModel) -> None:
    """Both kinds: layers of their own, and the share that attention drops by itself."""
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Its parts drop nothing out meanwhile; the model itself stays in training, by which trl tells its batches."""
    parts = [module for module in model.modules() if module is not model and module.training]
    for module in parts:
        module.training = False
    try:
        yield
    finally:
        for module in parts:
            module.training = True
