"""Graders of reinforcement fine-tuning → rewards of a job document, and back. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.spec.hyperparameters.parameter import LONGEST_TEXT
from app.domain.spec.hyperparameters.rlhf import reward_kind

FIELD = "method.reinforcement.grader"
REFERENCE = f"{FIELD}.reference"
STRING_CHECK = "string_check"
TYPES = (STRING_CHECK, "text_similarity", "score_model", "label_model", "python", "multi")
OUTPUT = "{{sample.output_text}}"
_OPERATIONS = ("eq", "ne", "like", "ilike")
_SUPPORTED = ("eq", "like", "ilike")
_UNKNOWN_COLUMN = re.compile(
    r"reward exact: the records have no column (\w+); they have (.+?)\. Name one, as in exact:solution"
)
_FIELDS = ("type", "name", "input", "reference", "operation")
_SPACED = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_COLUMN = re.compile(r"\{\{item\.(\w+)\}\}")
_META = re.compile(r"([!-/:-@\[-^`{-~])")  # ASCII punctuation but _, which is no operator
_WAY_OUT = (
    "use string_check, or leave the grader out and set training_config.hyperparameters.reward in trainyard to a Python "
    "file below a storage root"
)


def reward_of(grader: Mapping[str, Any]) -> str:
    """`reward` of the job document. Raises BadSpec for a grader that is none, and NotSupportedYet."""
    kind = grader.get("type")
    if kind not in TYPES:
        raise BadSpec(f"must be one of {', '.join(TYPES)}", field=f"{FIELD}.type")
    if kind != STRING_CHECK:
        raise NotSupportedYet(f"graders of type {kind} are not supported; {_WAY_OUT}", field=FIELD)
    _refuse_bad_fields(grader)
    if _plain(grader["input"]) != OUTPUT:
        raise NotSupportedYet(f"must be {OUTPUT}: rewards judge what the model wrote", field=f"{FIELD}.input")
    return _check(grader["operation"], _plain(grader["reference"]))


def grader_of(reward: str) -> dict[str, Any] | None:
    """The grader that means this reward; None where none does."""
    kind, column = reward_kind(reward)
    if kind != "exact":
        return None
    reference = f"{{{{item.{column}}}}}"
    return {"type": STRING_CHECK, "name": "reward", "input": OUTPUT, "reference": reference, "operation": "eq"}


def retold(message: str) -> str:
    """A job's failure, with what it says of the reward as it would be said of the grader's reference."""
    return _UNKNOWN_COLUMN.sub(r"{{item.\1}}: the records have no \1; they have \2", message)


def _check(operation: str, reference: str) -> str:
    column = _COLUMN.fullmatch(reference)
    if operation not in _SUPPORTED:
        raise NotSupportedYet(f"{operation} is not supported; {_WAY_OUT}", field=f"{FIELD}.operation")
    if operation == "eq" and column is not None:
        return _fitting(f"exact:{column[1]}")
    if "{{" in reference:
        raise NotSupportedYet(
            f"{reference[:64]} is supported with operation eq and as {{{{item.COLUMN}}}} alone; {_WAY_OUT}",
            field=REFERENCE,
        )
    literal = _META.sub(r"\\\1", reference)
    patterns = {"eq": rf"regex:\A\s*{literal}\s*\z", "like": f"regex:{literal}", "ilike": f"regex:(?i){literal}"}
    return _fitting(patterns[operation])


def _fitting(reward: str) -> str:
    if len(reward) > LONGEST_TEXT:
        raise BadSpec(
            f"is too long: it makes a reward of {len(reward):,} characters, in which punctuation counts twice; at most "
            f"{LONGEST_TEXT:,}",
            field=REFERENCE,
        )
    return reward


def _refuse_bad_fields(grader: Mapping[str, Any]) -> None:
    for name in _FIELDS:
        if not isinstance(grader.get(name), str) or not grader[name]:
            raise BadSpec("must be a text that is not empty", field=f"{FIELD}.{name}")
    if unknown := sorted(grader.keys() - set(_FIELDS)):
        raise BadSpec(f"is unknown; known: {', '.join(_FIELDS)}", field=f"{FIELD}.{unknown[0][:64]}")
    if grader["operation"] not in _OPERATIONS:
        raise BadSpec(f"must be one of {', '.join(_OPERATIONS)}", field=f"{FIELD}.operation")


def _plain(template: str) -> str:
    """Without spaces within braces."""
    return _SPACED.sub(r"{{\1}}", template.strip())
