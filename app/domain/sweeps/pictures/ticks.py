"""Where axes have ticks, and how numbers are written beside them."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.domain.sweeps.axes import Axis
from app.domain.sweeps.parameters import Value

_STEPS = (1, 2, 5, 10, 20)  # the last one where the logarithm was rounded down
_FINE = ((1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9))  # parts of a decade
# Outside of these, labels have an exponent.
_SMALL, _LARGE = 1e-3, 1e6
_GROUPED_FROM = 10_000
_CLOSE = Fraction(1, 10**9)
_SAME, _NEAR = 1e-9, 0.055  # distances of ticks


@dataclass(frozen=True)
class Tick:
    position: float  # 0 to 1, as of Axis.position
    label: str


def ticks(axis: Axis, most: int) -> list[Tick]:
    """About ``most`` ticks at round values, labelled with as many decimals as tell them apart."""
    if axis.scale == "listed":
        every = max(1, math.ceil(len(axis.values) / max(1, most)))
        return [_tick(axis, value, text_of(value)) for value in axis.values[::every]]
    values = _log_values(axis, most) if axis.scale == "log" else _linear_values(axis, most)
    return [_tick(axis, value, label) for value, label in zip(values, _labels(values), strict=True)]


def ticks_with_ends(axis: Axis, most: int) -> list[Tick]:
    """With a tick at both ends of the axis, in place of those that are near."""
    found = ticks(axis, most)
    if axis.scale == "listed" or axis.low == axis.high:
        return found
    ends = []
    for position, value in ((0.0, axis.low), (1.0, axis.high)):
        same = (each.label for each in found if abs(each.position - position) < _SAME)
        ends.append(Tick(position, next(same, _end(value, [each.label for each in found]))))
    return [ends[0], *(each for each in found if _NEAR < each.position < 1 - _NEAR), ends[1]]


def _end(value: float, labels: Sequence[str]) -> str:
    """As the other labels are: with an exponent if they have one."""
    return _short(f"{value:.2e}") if any("e" in label for label in labels) else text_of(value)


def text_of(value: Value) -> str:
    """A value in a text: numbers with four digits at most, true and false as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if value and not _SMALL <= abs(value) < _LARGE:
        return _short(f"{value:.3e}")
    if isinstance(value, int) or abs(value) >= _GROUPED_FROM:
        return _plain(f"{value:.0f}")
    return _short(f"{value:.4g}")


def _tick(axis: Axis, value: Value, label: str) -> Tick:
    position = axis.position(value)
    return Tick(0.5 if position is None else position, label)


def _linear_values(axis: Axis, most: int) -> list[float]:
    if axis.high <= axis.low:
        return [axis.low]
    # By fractions: multiples of 0.1 stay what they are.
    step = _step(Fraction(axis.high) - Fraction(axis.low), most)
    if axis.is_whole:
        step = max(step, Fraction(1))
    # An end such as 0.3 is not quite its decimal.
    first, last = math.ceil(Fraction(axis.low) / step - _CLOSE), math.floor(Fraction(axis.high) / step + _CLOSE)
    return [float(i * step) for i in range(first, last + 1)]


def _step(span: Fraction, most: int) -> Fraction:
    """The smallest of 1, 2 and 5 times a power of ten that needs no more ticks."""
    rough = span / max(1, most)
    # By two logarithms: the quotient may be too large for a float.
    power = Fraction(10) ** math.floor(math.log10(rough.numerator) - math.log10(rough.denominator))
    return next(power * each for each in _STEPS if power * each >= rough)


def _log_values(axis: Axis, most: int) -> list[float]:
    low, high = axis.low * (1 - 1e-9), min(axis.high * (1 + 1e-9), sys.float_info.max)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    whole = [value for value in (float(f"1e{each}") for each in decades) if low <= value <= high]
    if len(whole) > 2:
        return whole[:: math.ceil(len(whole) / max(1, most))]
    for parts in _FINE:
        values = [float(f"{part}e{each}") for each in decades for part in parts]
        found = [value for value in values if low <= value <= high]
        if len(found) > 2:
            return found[:: math.ceil(len(found) / max(1, most))]
    return _linear_values(axis, most)


def _labels(values: Sequence[float]) -> list[str]:
    largest = max((abs(value) for value in values), default=0.0)
    smallest = min((abs(value) for value in values if value), default=1.0)
    if smallest < _SMALL or largest >= _LARGE:
        return [_short(f"{value:.3g}" if value == 0 else f"{value:.2e}") for value in values]
    return [_plain(value) for value in _with_equal_decimals(values)]


def _with_equal_decimals(values: Sequence[float]) -> list[str]:
    """Each with as many decimals as the one that needs most; of a logarithmic axis each with its own."""
    texts = [f"{value:.10f}".rstrip("0").rstrip(".") for value in values]
    if len(values) > 2 and not math.isclose(values[2] - values[1], values[1] - values[0], rel_tol=1e-6):
        return texts
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    return [f"{value:.{decimals}f}" for value in values]


def _plain(text: str) -> str:
    whole, point, decimals = text.replace("-", "\N{MINUS SIGN}").partition(".")
    if point or len(whole) <= len("9999"):
        return whole + point + decimals
    return f"{int(whole.replace(chr(0x2212), '-')):,}".replace("-", "\N{MINUS SIGN}")


def _short(text: str) -> str:
    """Without zeros that say nothing: 1e-5 for 1.00e-05."""
    number, exponent, power = text.partition("e")
    if not exponent:
        return number.replace("-", "\N{MINUS SIGN}")
    number = (number.rstrip("0").rstrip(".") if "." in number else number).replace("-", "\N{MINUS SIGN}")
    return f"{number}e{int(power)}" if int(power) else number
