"""One thing that varies in a sweep: its values, and how it is read from and written to a document."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeGuard, get_args

from app.domain.errors import BadSpec
from app.domain.suggestions import did_you_mean

Value = int | float | bool | str
Kind = Literal["int", "double", "categorical", "bool"]
Scale = Literal["linear", "log"]

MAX_VALUES = 10_000
MAX_NAME = 200
MAX_TEXT = 4_096
# Whole numbers up to here are exact as floats, too, which the methods compute with.
LARGEST_WHOLE = 2**53
_NAME = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """``name`` is bare for a hyperparameter, dotted for a field of the document, or ``environment.NAME``.

    ``values`` takes precedence over the range, whose ends are inclusive. ``only_if``: active only if every named
    parameter is active and has one of these values.
    """

    name: str
    type: Kind
    low: float | None = None
    high: float | None = None
    step: float | None = None
    scale: Scale = "linear"
    values: tuple[Value, ...] = ()
    only_if: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def __post_init__(self) -> None:
        if self.type == "bool" and not self.values:
            object.__setattr__(self, "values", (False, True))

    @property
    def size(self) -> int | None:
        """Number of distinct values; None for a continuous range."""
        if self.values:
            return len(self.values)
        low, high = self._ends()
        if self.type == "int":
            return (int(high) - int(low)) // int(self.step or 1) + 1
        if self.step:
            return int((exact(high) - exact(low)) // exact(self.step)) + 1
        return 1 if low == high else None

    @property
    def is_constant(self) -> bool:
        return self.size == 1

    @property
    def is_number(self) -> bool:
        """Whether every value is a number; true and false are none."""
        return self.type in ("int", "double") or (
            self.type == "categorical" and all(is_number(value) for value in self.values)
        )

    def at(self, index: int) -> Value:
        """The ``index``-th of ``size`` values."""
        size = self.size
        if size is None or not 0 <= index < size:
            raise IndexError(f"{self.name} has no value {index}")
        if self.values:
            return self.values[index]
        low, _ = self._ends()
        if self.type == "int":
            return int(low) + index * int(self.step or 1)
        # By fractions: 0.1 + 2 × 0.1 is 0.3.
        return float(exact(low) + index * exact(self.step or 0))

    def from_unit(self, unit: float) -> Value:
        """The value at ``unit`` in [0, 1), which is divided equally among the values, or along the scale."""
        size = self.size
        if size is not None and (self.values or self.scale == "linear"):
            return self.at(min(int(unit * size), size - 1))
        low, high = self._ends()
        if self.type == "int":
            # Each whole number owns what rounds to it, at both ends as well.
            start, end = math.log(low - 0.5), math.log(high + 0.5)
            return min(max(round(math.exp(start + unit * (end - start))), int(low)), int(high))
        if self.scale == "log":
            start, end = math.log(low), math.log(high)
            return min(max(math.exp(start + unit * (end - start)), low), high)
        return min(max(low + unit * (high - low), low), high)

    def contains(self, value: Value) -> bool:
        if self.values:
            return any(same(value, mine) for mine in self.values)
        if not is_number(value) or (self.type == "int" and not isinstance(value, int)):
            return False
        low, high = self._ends()
        if not low <= value <= high:
            return False
        if not self.step:
            return True
        # Compared with the value of its step, because a sum may have more digits than a float.
        index = round((exact(value) - exact(low)) / exact(self.step))
        return index < (self.size or 0) and self.at(index) == value

    def normal(self, value: Value) -> Value:
        """A value that it contains, in the form in which it is drawn: numbers of type double are floats."""
        if self.values:
            return next(mine for mine in self.values if same(value, mine))
        return float(value) if self.type == "double" else value

    def to_json(self) -> dict[str, Any]:
        """The form of the document, without what is the default."""
        found: dict[str, Any] = {"type": self.type}
        if self.values:
            found["values"] = list(self.values)
        else:
            found |= {"min": self.low, "max": self.high}
            if self.step is not None:
                found["step"] = self.step
            if self.scale != "linear":
                found["scale"] = self.scale
        if self.only_if:
            found["only_if"] = {name: list(values) for name, values in self.only_if}
        return found

    @staticmethod
    def from_json(name: str, raw: object) -> "Parameter":
        """Read an object of the document, or a plain value, which is a constant. Raises BadSpec."""
        return _Reader(name, f"parameters.{name}").read(raw)

    def _ends(self) -> tuple[float, float]:
        if self.low is None or self.high is None:
            raise ValueError(f"{self.name} has neither values nor a range")
        return self.low, self.high


def exact(number: Value) -> Fraction:
    """The number that its decimal form means."""
    return Fraction(str(number))


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Value, other: Value) -> bool:
    """Whether two values are equal; 1 is not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


_FIELDS = ("type", "min", "max", "step", "scale", "values", "only_if")
_TYPES: dict[Kind, str] = {
    "int": "whole numbers",
    "double": "numbers",
    "categorical": "numbers, texts, true or false",
    "bool": "true or false",
}


@dataclass(frozen=True)
class _Reader:
    """Reads one parameter; ``field`` is where it stands in the document."""

    name: str
    field: str

    def read(self, raw: object) -> Parameter:
        if len(self.name) > MAX_NAME or _NAME.fullmatch(self.name) is None:
            raise BadSpec(
                f"{self.name[:MAX_NAME]!r} is no name of a parameter: use letters, digits, _ and -, with dots between "
                f"the parts of a path, at most {MAX_NAME} characters",
                field="parameters",
            )
        if not isinstance(raw, Mapping):
            return Parameter(name=self.name, type=_type_of([raw]), values=self._values([raw], _type_of([raw]), ""))
        for key in raw:
            if key not in _FIELDS:
                known = ", ".join(_FIELDS)
                raise self._bad(f"is not known; use {known}{did_you_mean(str(key), _FIELDS)}", str(key))
        return self._read_object({key: value for key, value in raw.items() if value is not None})

    def _read_object(self, raw: Mapping[str, Any]) -> Parameter:
        type_ = self._type(raw)
        only_if = self._only_if(raw.get("only_if", {}))
        if "values" in raw:
            values = self._values(raw["values"], type_, ".values")
            return Parameter(name=self.name, type=type_, values=values, only_if=only_if)
        if type_ in ("categorical", "bool"):
            self._no_range(raw, type_)
            return Parameter(name=self.name, type=type_, only_if=only_if)
        return self._range(raw, type_, only_if)

    def _type(self, raw: Mapping[str, Any]) -> Kind:
        if "type" not in raw and isinstance(raw.get("values"), list):
            return _type_of(raw["values"])
        for known in get_args(Kind):
            if raw.get("type") == known:
                found: Kind = known
                return found
        raise self._bad(f"must be one of {', '.join(get_args(Kind))}", "type")

    def _no_range(self, raw: Mapping[str, Any], type_: Kind) -> None:
        for key in ("min", "max", "step", "scale"):
            if key in raw:
                raise self._bad(f"counts for int and double only; leave it out of a {type_}", key)
        if type_ == "categorical":
            raise self._bad("is missing: list what a categorical may be", "values")

    def _range(
        self, raw: Mapping[str, Any], type_: Kind, only_if: tuple[tuple[str, tuple[Value, ...]], ...]
    ) -> Parameter:
        for key in ("min", "max"):
            if key not in raw:
                raise self._bad("is missing: give min and max, or values", key)
        low, high = (self._number(raw[key], type_, key) for key in ("min", "max"))
        if low > high:
            raise self._bad(f"{low} must not be above max, {high}", "min")
        if not math.isfinite(float(high) - float(low)):
            raise self._bad("is too far from min: their difference must be finite", "max")
        scale = self._scale(raw, low)
        step = self._number(raw["step"], type_, "step") if "step" in raw else None
        if step is not None and step <= 0:
            raise self._bad(f"{step} must be above 0", "step")
        if step is not None and scale == "log":
            raise self._bad("has no meaning on a scale log; leave it out, or list values", "step")
        found = Parameter(name=self.name, type=type_, low=low, high=high, step=step, scale=scale, only_if=only_if)
        if step is not None and step < math.ulp(max(abs(low), abs(high))):
            raise self._bad("is smaller than the distance of neighbouring floats there; use a larger one", "step")
        return found

    def _scale(self, raw: Mapping[str, Any], low: float) -> Scale:
        scale = raw.get("scale", "linear")
        if scale == "log":
            if low <= 0:
                raise self._bad(f"{low} must be above 0 with scale log; raise it, or use scale linear", "min")
            return "log"
        if scale != "linear":
            raise self._bad("must be linear or log", "scale")
        return "linear"

    def _number(self, value: object, type_: Kind, key: str) -> int | float:
        if not is_number(value):
            raise self._bad("must be a number", key)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._bad("must be finite", key)
        if type_ == "int":
            if value != int(value) or abs(value) > LARGEST_WHOLE:
                raise self._bad(f"{value!r:.40} must be a whole number, at most 2^53 from 0; or use type double", key)
            return int(value)
        return self._float(value, key)

    def _float(self, value: float, key: str) -> float:
        try:
            return float(value)
        except OverflowError as error:
            raise self._bad("is too large for a number of type double", key) from error

    def _values(self, raw: object, type_: Kind, at: str) -> tuple[Value, ...]:
        if not isinstance(raw, list):
            raise self._bad("must be a list", at[1:])
        if not 1 <= len(raw) <= MAX_VALUES:
            raise self._bad(f"has {len(raw)} entries; list 1 to {MAX_VALUES}", at[1:])
        values = tuple(self._value(value, type_, at[1:]) for value in raw)
        # Numbers and true or false apart, because 1 equals true.
        if len({(isinstance(value, bool), value) for value in values}) < len(values):
            twice = next(value for i, value in enumerate(values) if any(same(value, one) for one in values[:i]))
            raise self._bad(f"{twice!r:.80} is listed twice; leave one of them out", at[1:])
        return values

    def _value(self, value: object, type_: Kind, key: str) -> Value:
        if type_ in ("int", "double"):
            return self._number(value, type_, key)
        is_right = isinstance(value, bool) if type_ == "bool" else isinstance(value, bool | int | float | str)
        if not isinstance(value, bool | int | float | str) or not is_right:
            raise self._bad(f"of type {type_} must be {_TYPES[type_]}", key)
        if is_number(value):
            return self._number(value, "double" if isinstance(value, float) else "int", key)
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise self._bad(f"has a text of {len(value)} characters; {MAX_TEXT} are allowed", key)
        return value

    def _only_if(self, raw: object) -> tuple[tuple[str, tuple[Value, ...]], ...]:
        if not isinstance(raw, Mapping):
            raise self._bad("must map names of other parameters to lists of their values", "only_if")
        return tuple(
            (str(name), self._values(values, "categorical", f".only_if.{name}")) for name, values in raw.items()
        )

    def _bad(self, message: str, key: str = "") -> BadSpec:
        return BadSpec(message, field=f"{self.field}.{key}" if key else self.field)


def _type_of(values: list[Any]) -> Kind:
    """The type of values that come without one."""
    if values and all(isinstance(value, bool) for value in values):
        return "bool"
    if values and all(map(is_number, values)):
        return "int" if all(isinstance(value, int) for value in values) else "double"
    return "categorical"
