"""Declares a setting: a dataclass field with its description and validation rule."""

from dataclasses import field
from typing import Any

from config import value_rules as rules


def setting(default: Any, meaning: str, rule: rules.Rule | None = None) -> Any:
    """A field with its default, its sentence in ``docs/reference/settings.md``, and the rule for its values.

    ``…_seconds`` fields must be positive and finite by default.
    """
    return field(default=default, metadata={"meaning": meaning, "rule": rule})
