"""The envelope of JSON responses, and JSON serialization."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import Response, request
from marshmallow import Schema

# The schema of a body: a marshmallow schema, or JSON Schema, possibly with marshmallow schemas in it.
BodySchema = Schema | type[Schema] | dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """The reply of a resource method: data to wrap in the envelope, and deviations from a plain 200."""

    data: Any
    status: int = 200
    location: str | None = None
    warnings: Sequence[str] = ()  # `field: reason` for each field without effect


@dataclass(frozen=True)
class Problem:
    """An error response; ``details`` are (dotted field, message)."""

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
# Clients accept about 100 headers per response.
_MAX_WARNINGS = 30
_MAX_WARNING_LENGTH = 256
_META = {
    "type": "object",
    "required": ["request_id"],
    "properties": {"request_id": {"type": "string", "description": "Identifies this request in the operator's logs"}},
}


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def request_id() -> str:
    """The id of this request, also attached to its log lines."""
    return str(request.environ.setdefault(REQUEST_ID, new_request_id()))


def success_body(data: object) -> dict[str, Any]:
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


def json_response(body: object, status: int = 200) -> Response:
    return Response(to_json(body), status=status, mimetype="application/json")


def to_json(value: object) -> str:
    """Compact ASCII JSON: job output may contain lone surrogates. Raises ValueError for NaN, which JSON lacks."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """One header ``Warning: 299 - "text"`` per warning, as sent by the Kubernetes API server and printed by kubectl."""
    lines = [*warnings[:_MAX_WARNINGS]]
    if len(warnings) > _MAX_WARNINGS:
        lines.append(f"and {len(warnings) - _MAX_WARNINGS} more, listed in the job's events")
    return [("Warning", f'299 - "{_quotable(line)}"') for line in lines]


def _quotable(text: str) -> str:
    """The text as content of a quoted header string: printable ASCII with quotes and backslashes escaped."""
    printable = "".join(each if " " <= each <= "~" else "?" for each in text[:_MAX_WARNING_LENGTH])
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def page_schema(answer: BodySchema | None, items: str | None) -> BodySchema:
    """JSON Schema of the answer, or of a page of answers."""
    if answer is None:
        return {"type": "object"}
    if items is None:
        return answer
    return {
        "type": "object",
        "required": [items, "next_page_token", "total_count"],
        "properties": {
            items: {"type": "array", "items": answer},
            "next_page_token": {"type": "string", "description": "Empty on the last page"},
            "total_count": {"type": "integer", "minimum": 0, "maximum": 10_000},
            "total_count_capped": {"type": "boolean", "description": "Whether there are more than total_count"},
        },
    }


def envelope_schema(data: BodySchema) -> dict[str, Any]:
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
            "code": {
                "type": "string",
                "description": "A stable code for programs",
                "examples": ["VALIDATION_ERROR", "NOT_FOUND"],
            },
            "message": {"type": "string", "description": "What is wrong, which rule applies, and how to fix it"},
            "details": {"type": "array", "items": detail},
            "retry_after": {"type": "integer", "minimum": 1, "description": "Seconds to wait"},
        },
    }
    properties = {"status": {"const": "error"}, "error": error, "meta": _META}
    return {"type": "object", "required": ["status", "error", "meta"], "properties": properties}
