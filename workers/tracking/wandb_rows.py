"""Rows of the history of a run of Weights & Biases, made from metric points in order of arrival."""

from collections.abc import Iterator, Sequence
from typing import Any

STEP = "step"  # the value of a row that is the training's step
_RESERVED = "_"  # with which the client's own values begin
_APART = "metric/"


def rows(points: Sequence[list[Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(arrival number of its last point, values) of each row: points of one step that arrived one after the other.

    A point is ``[name, step, milliseconds since 1970, value, arrival number]``; NaN and infinities are texts.
    """
    row: dict[str, Any] = {}
    last = 0
    for name, step, at_ms, value, seq in points:
        shown = _name(name)
        if row and (row[STEP] != step or shown in row):
            yield last, row
            row = {}
        row |= {shown: float(value), STEP: step, "_timestamp": at_ms / 1000}
        last = seq
    if row:
        yield last, row


def _name(name: str) -> str:
    """A metric must not stand in for a value by which the run is continued."""
    return f"{_APART}{name}" if name == STEP or name.startswith(_RESERVED) else name
