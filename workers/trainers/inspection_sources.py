"""What the report of an inspection says of a source: its columns, its first records, and how many were read."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from workers.trainers.data.reading import rows
from workers.trainers.data.shapes import Record
from workers.trainers.data.sources import DataSource

SOURCES = "sources"  # of the report
MOST_COLUMNS = 100
MOST_SHOWN, LONGEST_SHOWN = 3, 600  # records of a source that people see, and characters of each

Shown = dict[str, Any]


def columns_of(source: DataSource) -> list[str]:
    """Columns of the first row, as named in the file: what a field mapping may refer to."""
    for file in source.files:
        first = next(rows(file, source.format), None)
        if first is not None:
            return sorted(map(str, itertools.islice(first.values, MOST_COLUMNS)))
    return []


def beginning(record: Record, tokens: int | None) -> Shown:
    """The beginning of a record; ``tokens`` is its length, None where it is not tokenized."""
    text = json.dumps(record, ensure_ascii=False, default=str)
    return {"text": text[:LONGEST_SHOWN], "cut": len(text) > LONGEST_SHOWN, "tokens": tokens}


def described(
    source: DataSource, columns: Sequence[str], count: int, first: Sequence[Shown], *, complete: bool
) -> Shown:
    """``count`` records were read, ``complete``: of no more; ``first`` are the beginnings of the first ones."""
    return {
        "index": source.index,
        "location": source.location,
        "split": source.split,
        "format": source.format,
        "files": len(source.files),
        "columns": list(columns),
        "records_read": count,
        "complete": complete,
        "first_records": list(first),
    }
