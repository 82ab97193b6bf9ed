"""Tables as CSV, for spreadsheets."""

import csv
import io
from collections.abc import Iterable, Sequence

CSV = "text/csv"


def table_of(rows: Iterable[object], columns: Sequence[str]) -> str:
    """A line of names, and one for each row with its attributes of these names; None is empty."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([getattr(row, name) for name in columns] for row in rows)
    return target.getvalue()
