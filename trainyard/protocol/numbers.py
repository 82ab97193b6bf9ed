"""Converts numbers from scripts: of numpy, of torch, or written as 1e6."""

import operator
from typing import Any


def whole(name: str, value: Any) -> int:
    """An integer, also when it comes as a float without a fraction. Raises TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        number = float(value) if hasattr(value, "__float__") else float("nan")
    if not number.is_integer():
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    return int(number)
