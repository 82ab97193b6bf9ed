"""The envelope of every JSON answer, and how JSON is written."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import Response, request


@dataclass(frozen=True)
class Reply:
    """What a resource method answers: the data to wrap, and what differs from a plain 200."""

    data: Any
    status: int = 200
    location: str | None = None
    warnings: Sequence[str] = ()  # `field: reason`: what of the request has no effect


@dataclass(frozen=True)
class Problem:
    """What an error tells the caller; ``details`` are (dotted field, message)."""

    status: int
    code: str
    message: str
    details: Sequence[tuple[str, str]] = field(default_factory=tuple)
    retry_after: int | None = None

    @property
    def named(self) -> str:
        """The message, with the field before it where it is about one and does not begin with it."""
        field, why = self.details[0] if self.details else ("", "")
        return f"{field}: {why}" if field and why == self.message else self.message


REQUEST_ID = "trainyard.request_id"
# Of headers in one answer: clients read some 100 of them at most.
_MOST_WARNINGS = 30
_LONGEST_WARNING = 256
_META = {
    "type": "object",
    "required": ["request_id"],
    "properties": {"request_id": {"type": "string", "description": "Names this request in the operator's logs"}},
}


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def request_id() -> str:
    """The id of this request, which its log lines have too."""
    return str(request.environ.setdefault(REQUEST_ID, new_request_id()))


def success_body(data: Any) -> dict[str, Any]:
    return {"status": "success", "data": data, "meta": {"request_id": request_id()}}


def problem_body(problem: Problem) -> dict[str, Any]:
    error: dict[str, Any] = {"code": problem.code, "message": problem.message}
    if problem.details:
        error["details"] = [{"field": name, "message": message} for name, message in problem.details]
    if problem.retry_after is not None:
        error["retry_after"] = problem.retry_after
    return {"status": "error", "error": error, "meta": {"request_id": request_id()}}


def error_response(problem: Problem) -> Response:
    return json_response(problem_body(problem), problem.status)


def json_response(body: Any, status: int = 200) -> Response:
    return Response(to_json(body), status=status, mimetype="application/json")


def to_json(value: Any) -> str:
    """Compact; ASCII, because what a job printed may hold lone surrogates; NaN is a bug here, not an answer."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """A header ``Warning: 299 - "text"`` for each, as Kubernetes' API server writes them and kubectl prints them."""
    lines = [*warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"and {len(warnings) - _MOST_WARNINGS} more, which the job's events name")
    return [("Warning", f'299 - "{_quotable(line)}"') for line in lines]


def _quotable(text: str) -> str:
    """What may stand in a quoted string of a header: printable ASCII; quotes and backslashes are escaped."""
    printable = "".join(each if " " <= each <= "~" else "?" for each in text[:_LONGEST_WARNING])
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def page_schema(answer: Any, items: str | None) -> Any:
    """JSON Schema of the answer, or of a page of such."""
    if answer is None:
        return {"type": "object"}
    if items is None:
        return answer
    return {
        "type": "object",
        "required": [items, "next_page_token", "total_count"],
        "properties": {
            items: {"type": "array", "items": answer},
            "next_page_token": {"type": "string", "description": "Empty after the last page"},
            "total_count": {"type": "integer", "minimum": 0, "maximum": 10_000},
            "total_count_capped": {"type": "boolean", "description": "There are more than total_count"},
        },
    }


def envelope_schema(data: Any) -> dict[str, Any]:
    """JSON Schema of `success_body`."""
    properties = {"status": {"const": "success"}, "data": data, "meta": _META}
    return {"type": "object", "required": ["status", "data", "meta"], "properties": properties}


def problem_schema() -> dict[str, Any]:
    """JSON Schema of `problem_body`."""
    detail = {
        "type": "object",
        "required": ["field", "message"],
        "properties": {
            "field": {"type": "string", "description": "A dotted path: data_config.sources.0.path"},
            "message": {"type": "string"},
        },
    }
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string", "description": "For programs", "examples": ["VALIDATION_ERROR", "NOT_FOUND"]},
            "message": {"type": "string", "description": "The thing, the rule and the way out"},
            "details": {"type": "array", "items": detail},
            "retry_after": {"type": "integer", "minimum": 1, "description": "Seconds to wait"},
        },
    }
    properties = {"status": {"const": "error"}, "error": error, "meta": _META}
    return {"type": "object", "required": ["status", "error", "meta"], "properties": properties}
