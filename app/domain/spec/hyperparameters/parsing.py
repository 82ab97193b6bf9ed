"""Parsing of a job's hyperparameters: typed values, defaults, and invalid combinations.

The keys of ``TABLES`` define which (framework, training type) pairs exist.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from app.domain.spec.hyperparameters import rlhf
from app.domain.spec.hyperparameters.parameter import (
    LARGEST_WHOLE,
    Hyperparameter,
    InvalidHyperparameter,
    Value,
    display,
    names,
)
from app.domain.spec.hyperparameters.places import place_of
from app.domain.spec.hyperparameters.tables import FIXED_ON_RESUME, PLATEAU, TABLES, USE_LORA
from app.domain.spec.inference import ENGINES
from app.domain.suggestions import did_you_mean, same

__all__ = [
    "CUSTOM",
    "LARGEST_WHOLE",
    "TABLES",
    "USE_LORA",
    "Hyperparameter",
    "InvalidHyperparameter",
    "Value",
    "check_data",
    "describe",
    "display",
    "names",
    "parse",
    "supported",
]

# A custom script reads its hyperparameters itself, whatever its training type.
CUSTOM = "CUSTOM"


def supported(framework: str, training_type: str) -> bool:
    """Whether there is a trainer for this pair; a custom script may have any training type."""
    return framework == CUSTOM or (framework, training_type) in TABLES


def describe(framework: str, training_type: str) -> list[dict[str, Any]]:
    """Every hyperparameter of a built-in trainer as data. Raises KeyError for other pairs."""
    return [item.describe() for item in TABLES[framework, training_type]]


def parse(framework: str, training_type: str, raw: Mapping[str, str]) -> dict[str, Value]:
    """Every hyperparameter of the trainer with its typed value, defaults filled in.

    A CUSTOM script gets the submitted values unchanged, and inference has none. Raises InvalidHyperparameter, and
    KeyError for an unsupported pair.
    """
    if framework == CUSTOM or framework in ENGINES:
        return dict(raw)
    table, defaults, places = _table(framework, training_type)
    for name in raw:
        if name not in table:
            raise InvalidHyperparameter(name, _unknown(name, framework, training_type))
    values = {**defaults, **{name: table[name].parse(raw[name]) for name in sorted(raw, key=places.__getitem__)}}
    _check_company([table[name] for name in raw], values)
    _check_together(values)
    return values


@cache
def _table(framework: str, training_type: str) -> tuple[dict[str, Hyperparameter], dict[str, Value], dict[str, int]]:
    """By name: the hyperparameters of a trainer, their defaults, and their places in its table."""
    table = {item.name: item for item in TABLES[framework, training_type]}
    return table, {name: item.default for name, item in table.items()}, {name: i for i, name in enumerate(table)}


def _unknown(name: str, framework: str, training_type: str) -> str:
    """What to say about a name that is not in the trainer's table: what was meant, or where it belongs."""
    table = sorted(item.name for item in TABLES[framework, training_type])
    others = [t for (f, t), items in TABLES.items() if f == framework and name in (item.name for item in items)]
    place, meant = place_of(name), same(name, table)
    if not meant and others:
        hint = f"; it is a hyperparameter of {', '.join(others)}"
    elif not meant and place and not place.startswith("training_config.hyperparameters."):
        hint = f"; it belongs at {place}"
    else:
        hint = did_you_mean(name, table)
    return f"{name} is unknown to {framework} {training_type}{hint}; known: {', '.join(table)}"


def fixed_on_resume(framework: str, training_type: str, raw: Mapping[str, str]) -> dict[str, Value | frozenset[str]]:
    """The values that determine a checkpoint's content: only a job with the same ones can resume from it."""
    table = TABLES.get((framework, training_type), ())
    values = {
        item: item.parse(raw[item.name]) if item.name in raw else item.default
        for item in table
        if item.name in FIXED_ON_RESUME
    }
    return {item.name: frozenset(names(value)) if item.kind == "names" else value for item, value in values.items()}


def check_data(values: Mapping[str, Value], *, evaluates: bool, streaming: bool) -> None:
    """Check parsed values against the rest of the document. Raises InvalidHyperparameter.

    `evaluates`: the training evaluates on validation data. `streaming`: the data is read while
    training, so its length is unknown.
    """
    if not evaluates:
        way_out = "set data_config.validation_split or give a source with split validation, and leave evaluation on"
        if values.get("early_stopping_patience"):
            raise InvalidHyperparameter(
                "early_stopping_patience", f"early_stopping_patience needs evaluations: {way_out}, or set it to 0"
            )
        if values.get("load_best_model_at_end"):
            raise InvalidHyperparameter(
                "load_best_model_at_end", f"load_best_model_at_end needs evaluations: {way_out}, or leave it out"
            )
        if values.get("lr_scheduler_type") == PLATEAU:
            raise InvalidHyperparameter(
                "lr_scheduler_type", f"lr_scheduler_type {PLATEAU} needs evaluations: {way_out}, or choose another"
            )
    if not streaming:
        return
    if rlhf.completes(values):
        raise InvalidHyperparameter(
            rlhf.ALGORITHM, "RLHF needs all its prompts at once: set data_config.streaming to false"
        )
    if int(values.get("max_steps", -1)) <= 0:
        raise InvalidHyperparameter(
            "max_steps", "streamed data has no known length: set max_steps above 0, or data_config.streaming to false"
        )
    for name in ("packing", "group_by_length"):
        if values.get(name):
            raise InvalidHyperparameter(
                name, f"{name} needs all records at once: leave it out, or set data_config.streaming to false"
            )


def _check_company(given: list[Hyperparameter], values: Mapping[str, Value]) -> None:
    """Refuse values without effect, unless they are the default."""
    for item in given:
        if item.only_with is None or values[item.name] == item.default:
            continue
        other, allowed = item.only_with
        if values[other] not in allowed:
            raise InvalidHyperparameter(
                item.name,
                f"{item.name} has no effect with {other} {display(values[other])}; leave it out, or set {other} to "
                f"{' or '.join(map(display, allowed))}",
            )


def _check_together(values: Mapping[str, Value]) -> None:
    if values["max_steps"] == 0:
        raise InvalidHyperparameter("max_steps", "max_steps: 0 steps train nothing; use -1 for num_train_epochs")
    if values["warmup_steps"] and values["warmup_ratio"]:
        raise InvalidHyperparameter(
            "warmup_ratio", "warmup_ratio and warmup_steps are alternatives; leave one of them out"
        )
    if values["early_stopping_threshold"] and not values["early_stopping_patience"]:
        raise InvalidHyperparameter(
            "early_stopping_threshold", "early_stopping_threshold has no effect without early_stopping_patience above 0"
        )
    if values["lr_scheduler_type"] == "polynomial" and float(values["lr_end"]) >= float(values["learning_rate"]):
        raise InvalidHyperparameter(
            "lr_end", f"lr_end {values['lr_end']} must be below learning_rate {values['learning_rate']}"
        )
    if values.get("loss_type") == "exo_pair" and not values["label_smoothing"]:
        raise InvalidHyperparameter(
            "label_smoothing", "label_smoothing must be above 0 with loss_type exo_pair; 0.001 is what its authors use"
        )
    rlhf.check(values)
    if values.get("packing") and values.get("group_by_length"):
        raise InvalidHyperparameter(
            "group_by_length",
            "group_by_length has no effect with packing, which leaves no padding; leave one of them out",
        )
