"""Applies a source's filters to rows; values that cannot be compared are an error."""

import datetime as dt
import decimal
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers.trainers.data.sources import RowFilter
from workers.trainers.failures import DataInvalid

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# A missing value never equals the compared one.
_HOLD_FOR_NULL = frozenset({"!=", "not_in", "not_contains", "is_null"})
_TRUTHS = {"true": True, "false": False}


class NotComparable(Exception):
    """Two values without a common order; the message names both."""


def passes(filter_: RowFilter, values: Mapping[str, Any], *, untyped: bool, where: str) -> bool:
    """Whether the filter holds for a row. `untyped` cells are texts, parsed as the type of the compared value.

    Raises DataInvalid naming row and column when they cannot be compared.
    """
    cell = values.get(filter_.column)
    if cell is None or (untyped and cell == ""):
        return filter_.op in _HOLD_FOR_NULL
    try:
        return _holds(filter_, cell, untyped=untyped)
    except NotComparable as error:
        raise DataInvalid(f"{where}, column {filter_.column}: {error} ({filter_.op} in filters)") from error


def _holds(filter_: RowFilter, cell: object, *, untyped: bool) -> bool:
    op, value = filter_.op, filter_.value
    if op in ("is_null", "not_null"):
        return op == "not_null"
    if op in ("in", "not_in"):
        return _is_in(cell, value, untyped=untyped) == (op == "in")
    if op in ("contains", "not_contains"):
        return _contains(cell, value) == (op == "contains")
    return _COMPARISONS[op](*_comparable(cell, value, untyped=untyped))


def _is_in(cell: object, values: Sequence[Any], *, untyped: bool) -> bool:
    """Raises NotComparable only when the cell can be compared with none of the values."""
    alike, unlike = [], NotComparable("the list to compare with is empty")
    for value in values:
        try:
            alike.append(_comparable(cell, value, untyped=untyped))
        except NotComparable as error:
            unlike = error
    if not alike:
        raise unlike
    return any(left == right for left, right in alike)


def _contains(cell: object, value: object) -> bool:
    if isinstance(cell, list):
        return value in cell
    if isinstance(cell, str) and isinstance(value, str):
        return value in cell
    raise NotComparable(f"only a text can contain a text and a list an element; it holds {_shown(cell)}")


def _comparable(cell: object, value: object, *, untyped: bool) -> tuple[object, object]:
    """Both as values of one type. Raises NotComparable."""
    if untyped and isinstance(cell, str) and not isinstance(value, str):
        cell = _read(cell, value)
    if isinstance(cell, dt.date | dt.time):
        cell = cell.isoformat()
    if _kind(cell) is None or _kind(cell) != _kind(value):
        raise NotComparable(f"{_shown(cell)} can't be compared with {_shown(value)}")
    return cell, value


def _read(text: str, like: object) -> object:
    if isinstance(like, bool):
        return _TRUTHS.get(text.strip().lower(), text)
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _kind(value: object) -> str | None:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float | decimal.Decimal):
        return "number"
    return "text" if isinstance(value, str) else None


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:40] + '…'}"
