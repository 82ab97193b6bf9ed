"""Strict JSON for messages and manifests: NaN and infinities as strings."""

import json
import math
from typing import Any, TypeAlias

# A value of a JSON document; its reader checks it.
JSON: TypeAlias = Any


def dumps(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """`value` as strict JSON; non-finite floats become "NaN", "Infinity" and "-Infinity"."""
    separators = (",", ":") if indent is None else (",", ": ")
    options: dict[str, Any] = {"indent": indent, "sort_keys": sort_keys, "separators": separators}
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_without_bare_nan(value), allow_nan=False, **options)


def json_number(value: float) -> float | str:
    """The value itself when it is finite, else "NaN", "Infinity" or "-Infinity"."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _without_bare_nan(value: object) -> object:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, dict):
        return {key: _without_bare_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_bare_nan(inner) for inner in value]
    return value
