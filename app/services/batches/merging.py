"""Puts answers and errors of a batch together, in the order of its requests. Pure but for the streams that it is given.

A request is found by its `custom_id`: rows of a job are in the order of the requests, and some may be missing.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.files.lines import Line, record_of

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Why a request has no answer."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Merged:
    """A line of the output file, or of the file with errors."""

    content: bytes
    is_answer: bool


def merged(
    batch_id: str, requests: Iterable[Line], rows: Mapping[str, Iterator[Row]], lost: Callable[[str], Lost | None]
) -> Iterator[Merged]:
    """``rows``: model → what its job has stored. ``lost``: why a request to a model has no row; None: leave it out."""
    heads: dict[str, Row | None] = {model: next(each, None) for model, each in rows.items()}
    for line in requests:
        request = record_of(line.content)
        custom_id, model = request["custom_id"], request["body"]["model"]
        if model in heads:
            heads[model] = _from(line.number, heads[model], rows[model])
        head = heads.get(model)
        if head is not None and head.get("custom_id") == custom_id:
            heads[model] = next(rows[model], None)
            yield _answered(batch_id, custom_id, head)
        elif (why := lost(model)) is not None:
            error = {"code": why.code, "message": why.message}
            yield _line(batch_id, custom_id, response=None, error=error, is_answer=False)


def _from(line: int, head: Row | None, rows: Iterator[Row]) -> Row | None:
    """The first row of this line of the file or of a later one; a row without a request must not hide others."""
    while head is not None and head.get("line", line) < line:
        head = next(rows, None)
    return head


def _answered(batch_id: str, custom_id: str, row: Row) -> Merged:
    response, error = row.get("response"), row.get("error")
    if error is not None or response is None:
        found = error or {}
        code = str(found.get("code") or "no_answer").lower()
        shown = {"code": code, "message": str(found.get("message") or "the request has no answer")}
        return _line(batch_id, custom_id, response=None, error=shown, is_answer=False)
    is_answer = 200 <= response["status_code"] < 300
    return _line(batch_id, custom_id, response=response, error=None, is_answer=is_answer)


def _line(batch_id: str, custom_id: str, *, response: Row | None, error: Row | None, is_answer: bool) -> Merged:
    row = {"id": _id(batch_id, custom_id), "custom_id": custom_id, "response": response, "error": error}
    text = json.dumps(row, ensure_ascii=False, separators=(", ", ": "))
    return Merged(content=text.encode("utf-8", "backslashreplace") + b"\n", is_answer=is_answer)


def _id(batch_id: str, custom_id: str) -> str:
    digest = hashlib.sha256(f"{batch_id} {custom_id}".encode("utf-8", "backslashreplace"))
    return f"batch_req_{digest.hexdigest()[:32]}"
