"""Reads the report of an inspection; the process that wrote it may have run untrusted code."""

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import IO, Any

from app.domain.errors import ERROR_TYPES
from trainyard.protocol.json import JSON

REPORT, LOG = "report.json", "inspection.log"
MOST_BYTES = 1 << 20
LONGEST_TEXT, MOST_ITEMS, DEEPEST = 2000, 200, 8
LOG_TAIL_BYTES = 2000
# PostgreSQL's JSON accepts neither NUL nor lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LISTS_OF_TEXTS = ("warnings", "left_out")

Report = dict[str, Any]


def read(run_dir: Path, log: IO[bytes], why_none: str) -> Report:
    """The inspection's report; without one, the reason and the last line of the log.

    ``log`` was opened before: its name may refer to anything now.
    """
    try:
        document = _clean(json.loads(_content(run_dir / REPORT)))
        if not isinstance(document, dict):
            raise TypeError(REPORT)
    except (OSError, ValueError, TypeError, RecursionError):
        return {"left_out": [_reason(log, why_none)]}
    for name in _LISTS_OF_TEXTS:
        document[name] = [str(each) for each in _list(document.get(name))]
    document["errors"] = [_error(each) for each in _list(document.get("errors")) if isinstance(each, dict)]
    return document


def _content(path: Path) -> bytes:
    """Content of a regular file only: a link could lead to secrets, and a pipe would block."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise ValueError(path)
        return file.read(MOST_BYTES)


def _reason(log: IO[bytes], why_none: str) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
    lines = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    reason = why_none or "the preflight of model and data left no result"
    return str(_clean(f"{reason}: {last}" if last else reason))


def _error(given: dict[str, Any]) -> dict[str, str]:
    kind = str(given.get("error_type"))
    return {
        "error_type": kind if kind in ERROR_TYPES else "TRAINER_ERROR",
        "message": str(given.get("message") or "the preflight of model and data failed"),
    }


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _clean(value: JSON, depth: int = 0) -> JSON:
    """The value with everything truncated to what may be stored and shown."""
    if depth > DEEPEST:
        return None
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value[:LONGEST_TEXT])
    if isinstance(value, dict):
        return {str(_clean(str(k))): _clean(v, depth + 1) for k, v in list(value.items())[:MOST_ITEMS]}
    if isinstance(value, list):
        return [_clean(each, depth + 1) for each in value[:MOST_ITEMS]]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
