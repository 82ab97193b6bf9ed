"""A hyperparameter: kind, range, dependencies, and parsing."""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from app.domain.suggestions import did_you_mean

Value = int | float | bool | str
Kind = Literal["int", "float", "bool", "choice", "names", "text"]
# From which step on a value has an effect on the weights: from the first one, from the first one whose learning rate it
# changes, or from none.
Matters = Literal["start", "schedule", "never"]

LARGEST_WHOLE = 2**31 - 1  # steps are stored in 32 bits
LONGEST_NAMES = 4096
LONGEST_TEXT = 4096

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter that users may set; ``minimum`` and ``maximum`` are inclusive.

    A value of the kind "names" is stored as names joined by commas. ``only_with`` names another
    hyperparameter and those of its values for which this one has an effect. ``matters``: from which step on two
    trainings differ that differ in this value.
    """

    name: str
    kind: Kind
    default: Value
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    only_with: tuple[str, tuple[Value, ...]] | None = None
    matters: Matters = "start"

    def parse(self, text: str) -> Value:
        """The typed value of ``text``. Raises InvalidHyperparameter."""
        value = self._read(text.strip())
        if value is None:
            meant = did_you_mean(text.strip(), self.choices)
            raise InvalidHyperparameter(self.name, f"{self.name}: {_shortened(text)!r} is not {self.expected}{meant}")
        return value

    def describe(self) -> dict[str, Any]:
        """The row as data for clients; None and empty where a property does not apply."""
        return {
            "name": self.name,
            "type": self.kind,
            "default": self.default,
            "minimum": self.minimum,
            "maximum": self._highest,
            "choices": list(self.choices),
            "only_with": {self.only_with[0]: list(self.only_with[1])} if self.only_with else {},
            "meaning": self.meaning,
        }

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "names":
            return "a list of names separated by commas"
        if self.kind == "text":
            return f"a text of at most {LONGEST_TEXT} characters"
        noun = "a whole number" if self.kind == "int" else "a number"
        bounds = ((">=", self.minimum), ("<=", self._highest))
        # Not :g for whole numbers, which would round the large ones.
        limits = " and ".join(
            f"{sign} {bound:g}" if isinstance(bound, float) else f"{sign} {bound}"
            for sign, bound in bounds
            if bound is not None
        )
        return f"{noun} {limits}".rstrip()

    def _read(self, text: str) -> Value | None:
        if self.kind == "choice":
            return text if text in self.choices else None
        if self.kind == "bool":
            lowered = text.lower()
            return lowered in _TRUE if lowered in _TRUE | _FALSE else None
        if self.kind == "names":
            return _names(text)
        if self.kind == "text":
            return text if len(text) <= LONGEST_TEXT else None
        try:
            number = int(text) if self.kind == "int" else float(text)
        except ValueError:
            return None
        return number if self._in_range(number) else None

    def _in_range(self, number: float) -> bool:
        # Not math.isfinite for whole numbers: it raises for those that no float can hold.
        if isinstance(number, float) and not math.isfinite(number):
            return False
        low, high = self.minimum, self._highest
        return (low is None or number >= low) and (high is None or number <= high)

    @property
    def _highest(self) -> float | None:
        return LARGEST_WHOLE if self.maximum is None and self.kind == "int" else self.maximum


class InvalidHyperparameter(ValueError):
    """A hyperparameter that is not known, or a value it cannot have; ``name`` is its key."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


def display(value: Value) -> str:
    """The value as users write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def names(value: Value) -> tuple[str, ...]:
    """The names of a parsed value of the kind "names"."""
    return tuple(name for name in str(value).split(",") if name)


def _names(text: str) -> str | None:
    if not text:
        return ""
    found = [name.strip() for name in text.split(",")]
    if len(text) > LONGEST_NAMES or not all(_NAME.fullmatch(name) for name in found):
        return None
    return ",".join(dict.fromkeys(found))


def _shortened(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}…"
