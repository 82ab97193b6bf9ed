"""CSV rows; errors name line, column and rule."""

import csv
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from app.domain.errors import InvalidRequest


class BadTrace(InvalidRequest):
    """A file that can't be replayed; the message names line, column and rule."""


@dataclass(frozen=True)
class CsvRow:
    """One line of the file; absent and empty columns are missing."""

    file: str
    line: int
    values: dict[str, str]

    def text(self, column: str, default: str = "") -> str:
        return self.values.get(column) or default

    def has(self, column: str) -> bool:
        return self.text(column) != ""

    def number(self, column: str, default: float | None = None, *, least: float = 0.0) -> float:
        """Raises BadTrace for a value that is no number, less than ``least``, or missing without a default."""
        return self._read(column, default, least, "a number")

    def whole(self, column: str, default: int | None = None, *, least: int = 0) -> int:
        """The same for a whole number; ``2.0`` is one."""
        value = self._read(column, default, least, "a whole number")
        if value != int(value):
            raise self.bad(column, f"a whole number from {least} on")
        return int(value)

    def flag(self, column: str) -> bool:
        """Raises BadTrace for anything but true, false, 1, 0 or nothing."""
        value = self.text(column, "false").lower()
        if value not in {"true", "false", "1", "0"}:
            raise self.bad(column, "true or false")
        return value in {"true", "1"}

    def bad(self, column: str, rule: str) -> BadTrace:
        shown = repr(self.text(column)) if self.has(column) else "empty"
        return BadTrace(f"{self.file}, line {self.line}, column {column}: is {shown:.80} and has to be {rule}")

    def _read(self, column: str, default: float | None, least: float, rule: str) -> float:
        if not self.has(column) and default is not None:
            return default
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.bad(column, f"{rule} from {least:g} on") from None
        if not least <= value < inf:
            raise self.bad(column, f"{rule} from {least:g} on")
        return value


def read_rows(file: str, lines: Iterable[str], needed: Collection[str]) -> Iterator[CsvRow]:
    """Raises BadTrace when the header lacks a needed column, or a line has more values than the header."""
    reader = csv.DictReader(lines, restkey="")
    missing = sorted(set(needed) - set(reader.fieldnames or ()))
    if missing:
        raise BadTrace(f"{file}, line 1: the header has no column {', '.join(missing)}")
    for values in reader:
        if "" in values:
            raise BadTrace(f"{file}, line {reader.line_num}: has more values than the header has columns")
        yield CsvRow(file, reader.line_num, {name: (value or "").strip() for name, value in values.items()})
