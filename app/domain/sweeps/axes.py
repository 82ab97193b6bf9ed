"""Axes of figures: where a value lies between the ends of a parameter, or of what trials have measured."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from app.domain.sweeps.parameters import Parameter, Value, is_number

Scale = Literal["linear", "log", "listed"]
# Measured values that differ by more than this factor have a logarithmic axis: one bad trial hides no other then.
_LOG_FROM = 20
_SMALLEST, _LARGEST = math.ulp(0.0), sys.float_info.max


@dataclass(frozen=True, kw_only=True)
class Axis:
    """``listed``: ``values`` with equal distances, numbers in ascending order; otherwise from ``low`` to ``high``."""

    name: str
    scale: Scale
    low: float = 0.0
    high: float = 0.0
    values: tuple[Value, ...] = ()
    is_whole: bool = False
    is_conditional: bool = False

    def position(self, value: Value) -> float | None:
        """0 at the lower end, 1 at the upper end, 0.5 where there is one value only; None for a value not listed."""
        if self.scale == "listed":
            place = self._places.get((isinstance(value, bool), value))
            return None if place is None else place / (len(self.values) - 1) if len(self.values) > 1 else 0.5
        if self.low == self.high:
            return 0.5
        number = float(value)
        if self.scale == "log":
            return (math.log(number) - math.log(self.low)) / self._length if number > 0 else None
        # Halves, because the distance of two floats may be too large for one; half of the smallest is 0.
        half = self.high / 2 - self.low / 2
        return (number / 2 - self.low / 2) / half if half else (number - self.low) / (self.high - self.low)

    def widened(self, share: float) -> "Axis":
        """With room of this share of its length at both ends, so that no mark lies on its frame."""
        if self.scale == "listed":
            return self
        if self.scale == "log":
            factor = math.exp(self._length * share) if self.high > self.low else 1 + share
            return replace(self, low=max(self.low / factor, _SMALLEST), high=min(self.high * factor, _LARGEST))
        room = (self.high / 2 - self.low / 2) * 2 * share or abs(self.low) * share or 1.0
        return replace(self, low=max(self.low - room, -_LARGEST), high=min(self.high + room, _LARGEST))

    @cached_property
    def _places(self) -> dict[tuple[bool, Value], int]:
        """1 and true are two values."""
        return {(isinstance(value, bool), value): place for place, value in enumerate(self.values)}

    @property
    def _length(self) -> float:
        """The length of a logarithmic axis, in natural logarithms."""
        return math.log(self.high) - math.log(self.low)


def axis_of(parameter: Parameter) -> Axis:
    """The axis of a parameter's whole range."""
    name, is_conditional = parameter.name, bool(parameter.only_if)
    if parameter.values or parameter.low is None or parameter.high is None:
        values = tuple(parameter.at(i) for i in range(parameter.size or 0))
        numbers = [value for value in values if is_number(value)]
        ascending = tuple(sorted(numbers)) if len(numbers) == len(values) else values
        return Axis(name=name, scale="listed", values=ascending, is_conditional=is_conditional)
    return Axis(
        name=name,
        scale=parameter.scale,
        low=parameter.low,
        high=parameter.high,
        is_whole=parameter.type == "int",
        is_conditional=is_conditional,
    )


def axis_of_measured(name: str, measured: Iterable[float]) -> Axis:
    """The axis from the least to the greatest value."""
    values = [*measured]
    low, high = min(values, default=0.0), max(values, default=0.0)
    is_wide = low > 0 and high / low >= _LOG_FROM
    return Axis(name=name, scale="log" if is_wide else "linear", low=low, high=high)
