"""What the tokens of a job's data depend on, beside the files and the tokenizer."""

from collections.abc import Mapping
from typing import Any

from app.domain.spec.hyperparameters.rlhf import ALGORITHM
from app.domain.spec.model import DataConfig

# Tokenization reads no other hyperparameter: it is given these alone.
_HYPERPARAMETERS = (
    ALGORITHM,
    "assistant_only_loss",
    "completion_only_loss",
    "packing",
    "max_prompt_length",
    "max_completion_length",
)
# How tokens are read and put into batches.
_NOT_OF_DATA = ("batch_size", "gradient_accumulation_steps", "num_workers", "pin_memory", "shuffle_buffer")


def hyperparameters_of_tokens(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the parsed hyperparameters that tokenization reads."""
    return {name: values[name] for name in _HYPERPARAMETERS if name in values}


def determinants(training_type: str, data: DataConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON document that differs for two jobs of one kind of framework if their tokens may."""
    document = {name: value for name, value in data.to_json().items() if name not in _NOT_OF_DATA}
    return {"training_type": training_type, "data_config": document, **hyperparameters_of_tokens(values)}
