"""Tables as comma-separated values (RFC 4180), which spreadsheets open without running what a cell says."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.domain.spreadsheet_cells import as_text

CSV = "text/csv"


def table_of(rows: Iterable[object], columns: Sequence[str]) -> str:
    """A line of names, and one for each row with its attributes of these names; None is empty."""
    return "".join(csv_lines(columns, ({name: getattr(row, name) for name in columns} for row in rows)))


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line with the names of the columns, then one for each row."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        yield _taken(buffer)
        writer.writerow([_cell(row[name]) for name in columns])
    yield _taken(buffer)


def _taken(buffer: io.StringIO) -> str:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text


def _cell(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    return as_text(value if isinstance(value, str) else json.dumps(value))
