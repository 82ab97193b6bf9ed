"""Numbers of a job document as OpenAI's hyperparameters: epochs, records of a step, and learning rate. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from app.compat.openai.fine_tuning.auto import MULTIPLIER
from app.compat.openai.fine_tuning.merging import found_at
from app.domain.spec.hyperparameters.tables import TABLES

_RATE = "learning_rate"
GENERATIONS = 8  # completions of a prompt, by default
_DEFAULT_BATCH, _DEFAULT_EPOCHS, _DEFAULT_BETA = 8, 3, 0.1


def rate_of(training: Mapping[str, Any], multiplier: float) -> float:
    """The learning rate: so many times the default of the training type."""
    return float(f"{multiplier * _default_rate(training):.12g}")


def devices_of(document: Mapping[str, Any]) -> int:
    """Devices that share a step's records; 1 where the document says none that could be."""
    found = 1
    for name in ("gpu_count", "node_count"):
        count = found_at(document, f"resource_config.{name}")
        found *= count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
    return found


def completions_of(training: Mapping[str, Any]) -> int:
    """Sequences of a step for each record of its batch: more than one where completions are compared."""
    if training.get("training_type") != "RLHF" or found_at(training, "hyperparameters.algorithm") == "reward":
        return 1
    return max(1, _whole(found_at(training, "hyperparameters.num_generations"), GENERATIONS))


def has_most_steps(document: Mapping[str, Any]) -> bool:
    """Whether the training ends after so many steps, whatever its epochs."""
    return _whole(found_at(document, "training_config.hyperparameters.max_steps"), 0) > 0


def hyperparameters_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """`n_epochs`, `batch_size`, `learning_rate_multiplier`, and what the method has beside them."""
    training = document["training_config"]
    values = training.get("hyperparameters") or {}
    sequences = _whole(found_at(document, "data_config.batch_size"), _DEFAULT_BATCH)
    sequences *= _whole(found_at(document, "data_config.gradient_accumulation_steps"), 1) * devices_of(document)
    return {
        "n_epochs": max(1, round(_number(values.get("num_train_epochs"), _DEFAULT_EPOCHS))),
        "batch_size": max(1, sequences // completions_of(training)),
        "learning_rate_multiplier": _multiplier(training, values),
        **_of_method(training, values),
    }


def _of_method(training: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, float]:
    if training.get("training_type") == "DPO":
        return {"beta": _number(values.get("beta"), _DEFAULT_BETA)}
    if training.get("training_type") == "RLHF":
        return {"compute_multiplier": completions_of(training) / GENERATIONS}
    return {}


def _multiplier(training: Mapping[str, Any], values: Mapping[str, Any]) -> float:
    rate, default = _number(values.get(_RATE), 0.0), _default_rate(training)
    return float(f"{rate / default:.6g}") if rate and default else MULTIPLIER


def _default_rate(training: Mapping[str, Any]) -> float:
    """0 for trainers without one, such as scripts."""
    pair = (str(found_at(training, "framework.type")), str(training.get("training_type")))
    return next((float(each.default) for each in TABLES.get(pair, ()) if each.name == _RATE), 0.0)


def _whole(value: object, default: int) -> int:
    return round(_number(value, default))


def _number(value: object, default: float) -> float:
    """Hyperparameters are texts, and those of scripts any."""
    try:
        number = float(value) if isinstance(value, int | float | str) else default
    except (ValueError, OverflowError):
        return default
    return number if math.isfinite(number) else default
