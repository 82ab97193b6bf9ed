"""Reads rows of data files in every format, plain or compressed, in bounded memory."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workers.trainers.data import text_rows
from workers.trainers.data.sources import DataFile
from workers.trainers.failures import InvalidConfig

_TEXT_READERS = {
    "jsonl": text_rows.jsonl_rows,
    "json": text_rows.json_rows,
    "csv": text_rows.csv_rows,
    "text": text_rows.text_rows,
}
_BY_LINES = frozenset({"jsonl", "csv", "text"})
FORMATS = (*_TEXT_READERS, "parquet", "arrow")


@dataclass(frozen=True, slots=True)
class DataRow:
    """`number` counts from 1: the line in text formats, else the record."""

    number: int
    values: Mapping[str, Any]


def rows(file: DataFile, format_: str, only: Collection[str] = ()) -> Iterator[DataRow]:
    """The rows of a file in order; columns not in `only` may be omitted, if it names any.

    Values of csv and text are texts. Raises DataNotFound and DataInvalid, naming file and row.
    """
    for number, values in _numbered(file, format_, only):
        yield DataRow(number, values)


def count_rows(file: DataFile, format_: str) -> int:
    """Number of rows in a file; content is not validated where avoidable."""
    if format_ in ("jsonl", "text"):
        return text_rows.count_lines(file, format_)
    if format_ == "parquet":
        from workers.trainers.data.columnar_rows import parquet_count  # noqa: PLC0415  (it loads pyarrow)

        return parquet_count(file)
    return sum(1 for _ in rows(file, format_))


def where(file: DataFile, format_: str, number: int) -> str:
    """The position of a row for messages: ``train.jsonl line 7``, ``data.parquet record 7``."""
    return f"{file.name} {'line' if format_ in _BY_LINES else 'record'} {number}"


def _numbered(file: DataFile, format_: str, only: Collection[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    if format_ in _TEXT_READERS:
        return _TEXT_READERS[format_](file)
    if format_ not in FORMATS:
        raise InvalidConfig(f"{file.name}: format {format_!r} is unknown; known: {', '.join(FORMATS)}")
    from workers.trainers.data.columnar_rows import arrow_rows, parquet_rows  # noqa: PLC0415  (they load pyarrow)

    return parquet_rows(file, only) if format_ == "parquet" else arrow_rows(file, only)
