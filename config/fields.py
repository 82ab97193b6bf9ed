"""How a setting is declared: a dataclass field that also carries its meaning and the rule for its values."""

from dataclasses import field
from typing import Any

from config import value_rules as rules


def setting(default: Any, meaning: str, rule: rules.Rule | None = None) -> Any:
    """A field with its default, its sentence in ``docs/reference/settings.md``, and the rule for its values.

    ``…_seconds`` must be positive and finite without being told so.
    """
    return field(default=default, metadata={"meaning": meaning, "rule": rule})
