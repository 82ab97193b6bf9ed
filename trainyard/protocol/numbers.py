"""Converts numbers from scripts: of numpy, of torch, or written as 1e6."""

import contextlib
import operator
from typing import SupportsFloat, SupportsIndex


def whole(name: str, value: object) -> int:
    """An integer, also when it comes as a float without a fraction. Raises TypeError."""
    if isinstance(value, SupportsIndex):
        with contextlib.suppress(TypeError):  # a tensor has the method even if it is no integer
            return operator.index(value)
    number = float(value) if isinstance(value, SupportsFloat) else float("nan")
    if not number.is_integer():
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    return int(number)
