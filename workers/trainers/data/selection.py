"""Selects rows of a source by slice, filters, sampling and columns; preserves the order."""

import random
import time
from collections.abc import Iterator
from typing import Any

from workers.trainers.data.filtering import passes
from workers.trainers.data.reading import DataRow, count_rows, rows, where
from workers.trainers.data.sources import DataFile, DataSource
from workers.trainers.failures import DataInvalid

_UNTYPED = frozenset({"csv", "text"})
# Every row of such a file has the same columns; in other formats a row may omit some.
FIXED_COLUMNS = frozenset({"csv", "text", "parquet", "arrow"})
_NAMES_SHOWN = 50
# Stands for "all" where a slice needs no count.
_MANY = 1 << 62

Chosen = Iterator[tuple[DataFile, DataRow]]


def selected(source: DataSource, *, one_pass: bool = False) -> Chosen:
    """The selected rows, with the file of each, after slice, filters, sampling and columns.

    With `one_pass` files are read only once, as for a stream: slices in percent and sampling.count are not applied,
    sampling.fraction is drawn row by row instead of exactly. Raises DataNotFound and DataInvalid.
    """
    for file, row in _sampled(source, one_pass=one_pass):
        yield file, _projected(source, row)


def _sampled(source: DataSource, *, one_pass: bool) -> Chosen:
    sampling = source.sampling
    if sampling is None or (one_pass and sampling.count is not None):
        yield from _filtered(source, one_pass=one_pass)
        return
    # Sources of one job draw differently although they share a seed.
    draw = random.Random(f"{sampling.seed}/{source.index}")  # noqa: S311
    if one_pass:
        yield from (chosen for chosen in _filtered(source, one_pass=True) if draw.random() < (sampling.fraction or 0))
        return
    left = sum(1 for _ in _filtered(source, one_pass=False))
    count = round(left * sampling.fraction) or min(left, 1) if sampling.fraction is not None else sampling.count or 0
    for chosen in _filtered(source, one_pass=False):
        # Knuth's selection sampling: exact in number, order-preserving, and without a list of the drawn rows.
        if draw.random() * left < count:
            count -= 1
            yield chosen
        left -= 1
        if not count:
            return


def _filtered(source: DataSource, *, one_pass: bool) -> Chosen:
    untyped = source.format in _UNTYPED
    for file, row in _sliced(source, one_pass=one_pass):
        place = where(file, source.format, row.number)
        if all(passes(each, row.values, untyped=untyped, where=place) for each in source.filters):
            yield file, row


def _sliced(source: DataSource, *, one_pass: bool) -> Chosen:
    chosen = _rows_of_slice(source, one_pass=one_pass)
    index = 0
    for file in source.files:
        for row in _rows_with_columns(source, file):
            if index >= chosen.stop:
                return
            if time.monotonic() > source.read_until:
                raise TimeoutError(f"{source.name} was not read in time")
            if index >= chosen.start:
                yield file, row
            index += 1


def _rows_of_slice(source: DataSource, *, one_pass: bool) -> range:
    cut = source.rows_slice
    if cut is None:
        return range(_MANY)
    by_share = any(bound is not None and bound.percent for bound in (cut.start, cut.stop))
    if by_share and one_pass:
        return range(_MANY)
    return cut.rows(sum(count_rows(file, source.format) for file in source.files) if by_share else _MANY)


def _rows_with_columns(source: DataSource, file: DataFile) -> Iterator[DataRow]:
    """The rows of a file, if it has every column that the source names."""
    columns = {*source.columns, *(each.column for each in source.filters)}
    missing, known = set(columns), dict[str, None]()
    for row in rows(file, source.format, columns if source.columns else ()):
        if missing:
            missing.difference_update(row.values)
            known.update(dict.fromkeys(row.values))
            if missing and source.format in FIXED_COLUMNS:
                raise _no_such_column(source, file, missing, known)
        yield row
    if missing and known:
        raise _no_such_column(source, file, missing, known)


def _no_such_column(source: DataSource, file: DataFile, missing: set[str], known: dict[str, None]) -> DataInvalid:
    names = ", ".join(list(known)[:_NAMES_SHOWN])
    asked = " and ".join(name for name in ("columns", "filters") if getattr(source, name))
    return DataInvalid(
        f"{file.name} has no column {', '.join(sorted(missing))}, which {source.field}.{asked} names; it has {names}"
    )


def _projected(source: DataSource, row: DataRow) -> DataRow:
    if not source.columns:
        return row
    values: dict[str, Any] = {name: row.values[name] for name in source.columns if name in row.values}
    return DataRow(row.number, values)
