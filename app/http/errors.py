"""Which error is which status, once, and the errors that only HTTP knows."""

import logging
from typing import Any

from flask import Flask, Response
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from werkzeug.exceptions import HTTPException

from app.database.engine import is_read_only
from app.domain import errors as domain
from app.http import denied
from app.http.context import dialect
from app.http.envelope import Problem, problem_body

logger = logging.getLogger(__name__)


class MalformedJson(domain.InvalidRequest):
    code = "MALFORMED_JSON"


class UnsupportedMediaType(domain.TrainyardError):
    code = "UNSUPPORTED_MEDIA_TYPE"


class BadShape(domain.TrainyardError):
    """The request is not what the schema says; ``details`` are (field, message)."""

    code = "VALIDATION_ERROR"

    def __init__(self, details: list[tuple[str, str]]) -> None:
        field, message = details[0]
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        super().__init__(f"{field}: {message}{more}" if field else f"{message}{more}")
        self.details = details


class RangeNotSatisfiable(domain.TrainyardError):
    code = "RANGE_NOT_SATISFIABLE"


class NotBuiltYet(domain.TrainyardError):
    code = "NOT_IMPLEMENTED"


STATUSES: dict[type[Exception], int] = {
    domain.InvalidRequest: 400,
    domain.Unauthenticated: 401,
    domain.Forbidden: 403,
    domain.NotFound: 404,
    domain.Conflict: 409,
    UnsupportedMediaType: 415,
    RangeNotSatisfiable: 416,
    BadShape: 422,
    domain.LimitExceeded: 429,
    NotBuiltYet: 501,
    domain.Unavailable: 503,
    domain.TrainyardError: 500,
}
HTTP_CODES = {
    400: "INVALID_ARGUMENT",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "BODY_TOO_LARGE",
    414: "URI_TOO_LONG",
    431: "HEADERS_TOO_LARGE",
}
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)
RETRY_AFTER_SECONDS = 2


def register(app: Flask) -> None:
    app.register_error_handler(Exception, respond)


def respond(error: Exception) -> Response:
    """Any exception as an answer in the envelope; what only operators may know goes to the log."""
    if isinstance(error, HTTPException):
        return _from_werkzeug(error)
    if isinstance(error, denied.DENIED):
        denied.note(error)
    response = failure(problem_of(error))
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="trainyard"'
    return response


def failure(problem: Problem) -> Response:
    """As the caller's vocabulary tells it."""
    response = dialect().failure(problem)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def problem_of(error: Exception) -> Problem:
    """What to tell about an error that is not Werkzeug's."""
    passes = isinstance(error, DBAPIError) and (error.connection_invalidated or is_read_only(error))
    if isinstance(error, DATABASE_AWAY) or passes:
        logger.warning("the database does not answer: %s", error)
        return _away("the database does not answer; try again")
    if isinstance(error, IntegrityError):
        # Only the rule, not the row: that may hold what nobody should read in a log.
        rule = getattr(getattr(error.orig, "diag", None), "constraint_name", None) or type(error.orig).__name__
        logger.warning("a change met another one that was made at the same moment: %s", rule)
        return Problem(409, "CONFLICT", "what this belongs to was changed or removed at the same moment; look again")
    if isinstance(error, DataError):
        # Whatever lets such a value through should have refused it: the log says where.
        logger.error("the database refused a value", exc_info=error)
        return Problem(400, "INVALID_ARGUMENT", "a value is outside what can be stored; use a smaller or shorter one")
    status = next((STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES), 500)
    if not isinstance(error, domain.TrainyardError) or status == 500:
        logger.error("a request failed", exc_info=error)
        return Problem(500, "INTERNAL", "an internal error; the operator finds more in the log by the request id")
    if status == 503:
        logger.warning("%s", error)
        return _away("a part that this needs does not answer; try again")
    details = error.details if isinstance(error, BadShape) else []
    if error.field is not None:
        details = [(error.field, error.message)]
    wait = error.retry_after_seconds if isinstance(error, domain.LimitExceeded) else None
    return Problem(status, error.code, error.message, details=details, retry_after=wait)


def stream_problem(error: Exception) -> dict[str, Any]:
    """The same for an error in the middle of a stream, whose status was sent long ago."""
    body: dict[str, Any] = problem_body(problem_of(error))["error"]
    return body


def _away(message: str) -> Problem:
    return Problem(503, "UNAVAILABLE", message, retry_after=RETRY_AFTER_SECONDS)


def _from_werkzeug(error: HTTPException) -> Response:
    status = error.code or 500
    messages = {
        404: "no such resource; GET /v1/openapi.json lists all",
        405: "this resource does not take that method; the header Allow lists those it takes",
        413: "the body is too large; the limit is 1 MiB unless the operator changed it",
    }
    code = HTTP_CODES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    response = failure(Problem(status, code, messages.get(status, "the request cannot be served")))
    for name, value in error.get_headers():
        if name in ("Allow", "Location"):
            response.headers[name] = value
    return response
