"""Runs at the start of every Python process whose PYTHONPATH has this folder first, and counts its SQL statements.

The counts, by the statement's text, are in the folder that BENCHMARKS_STATEMENTS names, in one file for each process.
They are written with a statement that comes a moment after the last writing: a thread would be in the way of forks.
"""

import json
import os
import time
from collections import Counter
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

FOLDER = Path(os.environ["BENCHMARKS_STATEMENTS"])
EVERY_SECONDS = 0.2
_counts: Counter[str] = Counter()
_written_at = [0.0]


def _count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
    _counts[" ".join(statement.split())] += 1
    now = time.monotonic()
    if now - _written_at[0] >= EVERY_SECONDS:
        _written_at[0] = now
        new = FOLDER / f".{os.getpid()}"
        new.write_text(json.dumps(_counts))
        new.rename(FOLDER / f"{os.getpid()}.json")


event.listen(Engine, "before_cursor_execute", _count)
os.register_at_fork(after_in_child=_counts.clear)
