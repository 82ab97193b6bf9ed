"""The job's tokenizer with the configured changes applied; needs no torch, so that inspections load it quickly."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from app.domain.spec.model import BaseModel
from workers.rank.run_context import RunSpec
from workers.rank.spec_sections import data_config, training_config
from workers.trainers.failures import InvalidConfig, ModelNotFound

_ATTRIBUTES = ("padding_side", "truncation_side", "model_max_length")
_TOKENS = ("pad_token", "eos_token", "bos_token", "unk_token")
_MORE_TOKENS = "additional_special_tokens"


def load_tokenizer(spec: RunSpec) -> PreTrainedTokenizerBase:
    """The tokenizer that the job names, else the base model's, with `preprocess.tokenizer_config` applied.

    Unknown special tokens are appended to the vocabulary. A tokenizer without a padding token pads with its
    end-of-sequence token. Raises ModelNotFound and InvalidConfig.
    """
    tokenizer = read_tokenizer(spec, spec.tokenizer_path or spec.model_path)
    if tokenizer.eos_token is None:
        raise InvalidConfig(
            "the tokenizer has no end-of-sequence token, so the model could not learn to stop; "
            "name one in data_config.preprocess.tokenizer_config.eos_token"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def read_tokenizer(spec: RunSpec, path: str) -> PreTrainedTokenizerBase:
    """The tokenizer in this directory, with `preprocess.tokenizer_config` applied. Raises ModelNotFound."""
    directory = existing_model_path(path)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **trust_options(spec))
    except (ImportError, KeyError, OSError, TypeError, ValueError) as error:
        raise ModelNotFound(f"the tokenizer in {Path(directory).name} can't be loaded: {error}") from error
    _configure(tokenizer, data_config(spec).preprocess.tokenizer_config)
    return tokenizer


def existing_model_path(path: str) -> str:
    """`path` if it holds a model or a tokenizer. Raises ModelNotFound."""
    if not (Path(path) / "config.json").exists() and not (Path(path) / "tokenizer_config.json").exists():
        raise ModelNotFound(f"{path or 'no path'} holds no model: there is no config.json in it")
    return path


def base_model(spec: RunSpec) -> BaseModel:
    return training_config(spec).base_model


def trust_options(spec: RunSpec) -> dict[str, bool]:
    """The `from_pretrained` arguments that allow or forbid code shipped with a model."""
    return {"trust_remote_code": base_model(spec).trust_remote_code}


def _configure(tokenizer: PreTrainedTokenizerBase, wanted: Mapping[str, Any]) -> None:
    for name in _ATTRIBUTES:
        if wanted.get(name) is not None:
            setattr(tokenizer, name, wanted[name])
    tokens = {name: wanted[name] for name in _TOKENS if wanted.get(name) is not None}
    if wanted.get(_MORE_TOKENS):
        tokens[_MORE_TOKENS] = list(wanted[_MORE_TOKENS])
    if tokens:
        # Keeps the model's own additional special tokens.
        tokenizer.add_special_tokens(tokens, replace_extra_special_tokens=False)
