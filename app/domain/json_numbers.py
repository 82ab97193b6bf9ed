"""Numbers where JSON has none: NaN and the infinities by name, everywhere in the same way."""

import math


def json_number(value: float) -> float | str:
    """The value itself, or its name: NaN, Infinity, -Infinity."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number_of(value: float | None, special: str | None) -> float:
    """The number of a stored pair: the value, or the name of one that is not finite."""
    if special is not None:
        return float(special)
    return math.nan if value is None else value
