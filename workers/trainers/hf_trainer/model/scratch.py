"""Models trained from scratch: built from a configuration, with weights initialized by the job's seed."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from app.domain.spec.rules.model import is_drawn
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config
from workers.trainers.failures import InvalidConfig, is_out_of_memory
from workers.trainers.hf_trainer.model.tokenizer import base_model, existing_model_path, trust_options

__all__ = ["check_buildable", "configuration", "draw_weights", "is_from_scratch", "unknown_fields"]

# Metadata in config.json about the file itself and about weights that do not exist here.
_BOOKKEEPING = {"architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "model_type"}
# Names of earlier versions that transformers still reads.
_FORMER = {"rope_theta", "rope_scaling"}


def is_from_scratch(spec: RunSpec) -> bool:
    return is_drawn(base_model(spec))


def configuration(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """The configuration that the job defines, or the config.json of its model; token ids that it omits come from the
    tokenizer.

    Raises InvalidConfig and ModelNotFound.
    """
    definition = base_model(spec).from_config
    try:
        if not isinstance(definition, Mapping):
            found: PretrainedConfig = AutoConfig.from_pretrained(
                existing_model_path(spec.model_path), **trust_options(spec)
            )
            return found
        kind = definition["model_type"]
        if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or kind not in CONFIG_MAPPING:
            raise InvalidConfig(
                f"from_config: transformers knows no causal language model of type {kind[:80]!r}; take one such as "
                "llama, qwen2, mistral or gpt2"
            )
        values = {**_of_tokens(tokenizer), **definition}
        return AutoConfig.for_model(kind, **{name: value for name, value in values.items() if name != "model_type"})
    except InvalidConfig:
        raise
    except Exception as error:  # transformers passes on any exception of its parts
        raise InvalidConfig(f"from_config is no configuration that transformers can read: {error}") from error


def _of_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    return {"vocab_size": len(tokenizer), **special}


def draw_weights(config: PretrainedConfig, spec: RunSpec, **how: Any) -> PreTrainedModel:
    """A model with weights initialized by the job's seed, equal on every rank and at every start. Raises
    InvalidConfig.
    """
    set_seed(data_config(spec).seed)
    return _made(config, spec, **how)


def check_buildable(config: PretrainedConfig, spec: RunSpec) -> None:
    """Check that a model can be built from the configuration, without allocating its weights. Raises InvalidConfig."""
    with torch.device("meta"):
        _made(config, spec)


def unknown_fields(spec: RunSpec) -> list[str]:
    """Fields of the definition that the model type does not know."""
    definition = base_model(spec).from_config
    if not isinstance(definition, Mapping):
        return []
    known = AutoConfig.for_model(definition["model_type"])
    text = known.get_text_config()
    return sorted(
        name
        for name in definition
        if name not in _BOOKKEEPING | _FORMER and not (hasattr(known, name) or hasattr(text, name))
    )


def _made(config: PretrainedConfig, spec: RunSpec, **how: Any) -> PreTrainedModel:
    kind: Any = AutoModelForCausalLM
    try:
        model: PreTrainedModel = kind.from_config(config, **trust_options(spec), **how)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InvalidConfig(f"from_config: no model can be made of this {config.model_type}: {error}") from error
    return model
