"""A parameter of a benchmark: kind, range, and the check of a JSON value."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.domain.spec.rules.inference import LONGEST_STOP, MOST_STOPS

Kind = Literal["int", "float", "bool", "choice", "text", "texts"]
LONGEST_TEXT = 4096


class BadBenchmark(ValueError):
    """A benchmark that can't be measured; ``field`` is relative to the benchmark, as ``parameters.stop``."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


@dataclass(frozen=True)
class BenchmarkParameter:
    """``minimum`` and ``maximum`` are inclusive; a default of None means that the parameter may be missing."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    shortest: int = 0  # characters of a text
    most: int = MOST_STOPS  # texts of a list

    def check(self, value: object) -> None:
        """Raises BadBenchmark for a value of another kind or out of range."""
        if not _CHECKS[self.kind](self, value):
            raise BadBenchmark(f"parameters.{self.name}", f"{self.name}: {_shown(value)} is not {self.expected}")

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "texts":
            return f"a list of at most {self.most} texts of 1 to {LONGEST_STOP} characters"
        if self.kind == "text":
            return f"a text of {f'{self.shortest} to' if self.shortest else 'at most'} {LONGEST_TEXT} characters"
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        noun = "a whole number" if self.kind == "int" else "a number"
        bounds = ((">=", self.minimum), ("<=", self.maximum))
        return (
            f"{noun} {' and '.join(f'{sign} {_number(bound)}' for sign, bound in bounds if bound is not None)}".rstrip()
        )

    def is_in_range(self, number: float) -> bool:
        return (self.minimum is None or number >= self.minimum) and (self.maximum is None or number <= self.maximum)


def _is_int(parameter: BenchmarkParameter, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and parameter.is_in_range(value)


def _is_float(parameter: BenchmarkParameter, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (isinstance(value, int) or math.isfinite(value)) and parameter.is_in_range(value)


def _is_bool(_: BenchmarkParameter, value: object) -> bool:
    return isinstance(value, bool)


def _is_choice(parameter: BenchmarkParameter, value: object) -> bool:
    return isinstance(value, str) and value in parameter.choices


def _is_text(parameter: BenchmarkParameter, value: object) -> bool:
    return isinstance(value, str) and parameter.shortest <= len(value) <= LONGEST_TEXT


def _are_texts(parameter: BenchmarkParameter, value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) > parameter.most:
        return False
    return all(isinstance(each, str) and 0 < len(each) <= LONGEST_STOP for each in value)


_CHECKS: Mapping[Kind, Callable[[BenchmarkParameter, object], bool]] = {
    "int": _is_int,
    "float": _is_float,
    "bool": _is_bool,
    "choice": _is_choice,
    "text": _is_text,
    "texts": _are_texts,
}


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:64]}…"
