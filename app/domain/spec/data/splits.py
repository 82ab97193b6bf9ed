"""Splits: purpose and rows of a source, such as ``train``, ``validation[:20%]``, ``test[100:200]``."""

import re
from dataclasses import dataclass
from functools import lru_cache

from app.domain.suggestions import did_you_mean

TRAIN, VALIDATION, TEST = "train", "validation", "test"
NAMES = {
    TRAIN: TRAIN,
    VALIDATION: VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
    "dev": VALIDATION,
    "eval": VALIDATION,
    TEST: TEST,
}
FORM = "train, validation or test, with rows in brackets if not all are meant: train[:80%], validation[100:]"

_FORM = re.compile(r"([a-z]+)(?:\[([0-9]{1,18}%?)?:([0-9]{1,18}%?)?\])?", re.ASCII)


class BadSplit(ValueError):
    """An invalid split; the message says why."""


@dataclass(frozen=True)
class Bound:
    """A row's index from 0, or a percentage of all rows."""

    value: int
    percent: bool = False

    def of(self, rows: int) -> int:
        # Rounded down: [:80%] and [80%:] never share a row, and never lose one.
        return min(rows, rows * self.value // 100 if self.percent else self.value)


@dataclass(frozen=True)
class Split:
    """``name`` is train, validation or test; a bound of None is the first or the last row."""

    name: str = TRAIN
    start: Bound | None = None
    stop: Bound | None = None

    @property
    def is_sliced(self) -> bool:
        return self.start is not None or self.stop is not None

    def rows(self, total: int) -> range:
        """Indices, from 0, of the rows to take of ``total``."""
        start = self.start.of(total) if self.start is not None else 0
        stop = self.stop.of(total) if self.stop is not None else total
        return range(start, max(start, stop))


@lru_cache(maxsize=256)
def parse_split(text: str | None) -> Split:
    """Parse a split; None and the empty text are ``train``. Raises BadSplit."""
    if not text:
        return Split()
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in NAMES:
        meant = did_you_mean(text.partition("[")[0], NAMES)
        raise BadSplit(f"the split is {text[:64]!r}{meant}, and must be {FORM}")
    split = Split(NAMES[match[1]], _bound(match[2]), _bound(match[3]))
    _check_not_empty(split)
    return split


def _bound(text: str | None) -> Bound | None:
    if text is None:
        return None
    percent = text.endswith("%")
    bound = Bound(int(text.removesuffix("%")), percent=percent)
    if percent and bound.value > 100:
        raise BadSplit(f"{text} is more than all rows; a percentage goes from 0% to 100%")
    return bound


def _check_not_empty(split: Split) -> None:
    start, stop = split.start or Bound(0), split.stop
    if start == Bound(100, percent=True) or (stop is not None and stop.value == 0):
        raise BadSplit("the rows in brackets are none; the first bound must be less than the second")
    if stop is not None and start.percent == stop.percent and start.value >= stop.value:
        raise BadSplit("the rows in brackets are none; the first bound must be less than the second")
