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


@dataclass(frozen=True)
class Problem:
    """What an error tells the caller; ``details`` are (dotted field, message)."""

    status: int
    code: str
    message: str
    details: Sequence[tuple[str, str]] = field(default_factory=tuple)
    retry_after: int | None = None


REQUEST_ID = "trainyard.request_id"


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
    response = json_response(problem_body(problem), problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def json_response(body: Any, status: int = 200) -> Response:
    return Response(to_json(body), status=status, mimetype="application/json")


def to_json(value: Any) -> str:
    """Compact; ASCII, because what a job printed may hold lone surrogates; NaN is a bug here, not an answer."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
