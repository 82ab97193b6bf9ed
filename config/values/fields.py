"""Declares a setting: a dataclass field with its description and validation rule."""

from dataclasses import field
from typing import TypeVar

from config.values import rules

Value = TypeVar("Value")


def setting(default: Value, meaning: str, rule: rules.Rule | None = None) -> Value:
    """A field with its default, its sentence in ``docs/reference/settings.md``, and the rule for its values.

    ``…_seconds`` fields must be positive and finite by default.
    """
    return field(default=default, metadata={"meaning": meaning, "rule": rule})
