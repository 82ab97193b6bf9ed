"""NaN and infinities in JSON, represented by name."""

import math


def json_number(value: float) -> float | str:
    """The value itself, or its name: NaN, Infinity, -Infinity."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number_of(value: float | None, special: str | None) -> float:
    """Decode a stored pair: the value, or the name of a non-finite one."""
    if special is not None:
        return float(special)
    return math.nan if value is None else value
