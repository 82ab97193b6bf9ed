"""Graders of reinforcement fine-tuning → rewards and graders of a job document, and back. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.graders.document import StringCheck, parse
from app.domain.spec.hyperparameters.parameter import LONGEST_TEXT
from app.domain.spec.hyperparameters.rlhf import reward_kind

FIELD = "method.reinforcement.grader"
REFERENCE = f"{FIELD}.reference"
REWARD, GRADER = "training_config.hyperparameters.reward", "training_config.grader"
STRING_CHECK = "string_check"
OUTPUT = "{{sample.output_text}}"
_UNKNOWN_COLUMN = re.compile(
    r"reward exact: the records have no column (\w+); they have (.+?)\. Name one, as in exact:solution"
)
_OF_GRADER = "grader: "  # begins what trainers say of it
_SPACED = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_COLUMN = re.compile(r"\{\{item\.(\w+)\}\}")
_META = re.compile(r"([!-/:-@\[-^`{-~])")  # ASCII punctuation but _, which is no operator


def native_of(grader: Mapping[str, Any]) -> tuple[str, Any]:
    """Path and value in a job document: a reward, where one means the grader, else the grader itself.

    Raises BadSpec for a grader that is none, and NotSupportedYet.
    """
    parsed = parse(grader, FIELD)
    reward = _reward_of(parsed) if isinstance(parsed, StringCheck) else None
    return (GRADER, dict(grader)) if reward is None else (REWARD, reward)


def grader_of(training: Mapping[str, Any]) -> dict[str, Any] | None:
    """The grader of a `training_config`: its own, or that which means its reward; None where none does."""
    if training.get("grader"):
        return dict(training["grader"])
    kind, column = reward_kind(str((training.get("hyperparameters") or {}).get("reward", "exact")))
    if kind != "exact":
        return None
    reference = f"{{{{item.{column}}}}}"
    return {"type": STRING_CHECK, "name": "reward", "input": OUTPUT, "reference": reference, "operation": "eq"}


def retold(message: str) -> str:
    """A job's failure, with what it says of the reward as it would be said of the grader's reference."""
    return _UNKNOWN_COLUMN.sub(r"{{item.\1}}: the records have no \1; they have \2", message)


def param_of(message: str) -> str | None:
    """The field of the grader that a job's failure is about; None for one that is about something else."""
    if _UNKNOWN_COLUMN.search(message):
        return REFERENCE
    return FIELD if message.startswith(_OF_GRADER) else None


def _reward_of(grader: StringCheck) -> str | None:
    """The reward that means the same; None where none does."""
    operation, reference = grader.operation, _plain(grader.reference)
    if _plain(grader.input) != OUTPUT:
        return None
    column = _COLUMN.fullmatch(reference)
    if operation == "eq" and column is not None:
        return _fitting(f"exact:{column[1]}")
    if operation == "ne" or "{{" in reference:
        return None
    literal = _META.sub(r"\\\1", reference)
    patterns = {"eq": rf"regex:\A\s*{literal}\s*\z", "like": f"regex:{literal}", "ilike": f"regex:(?i){literal}"}
    return _fitting(patterns[operation])


def _fitting(reward: str) -> str | None:
    return reward if len(reward) <= LONGEST_TEXT else None


def _plain(template: str) -> str:
    """Without spaces within braces."""
    return _SPACED.sub(r"{{\1}}", template.strip())
