"""The mapping of errors to HTTP statuses, and errors specific to HTTP."""

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
    """The request does not match its schema; ``details`` are (field, message)."""

    code = "VALIDATION_ERROR"

    def __init__(self, details: list[tuple[str, str]]) -> None:
        field, message = details[0]
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        super().__init__(f"{field}: {message}{more}" if field else f"{message}{more}")
        self.details = details


class RangeNotSatisfiable(domain.TrainyardError):
    code = "RANGE_NOT_SATISFIABLE"


class Misdirected(domain.TrainyardError):
    """Another host, or another process, answers this."""

    code = "MISDIRECTED"


class NotBuiltYet(domain.TrainyardError):
    code = "NOT_IMPLEMENTED"


STATUSES: dict[type[Exception], int] = {
    domain.InvalidRequest: 400,
    domain.Unauthenticated: 401,
    domain.Forbidden: 403,
    domain.StorageQuotaExceeded: 403,
    domain.NotFound: 404,
    domain.Conflict: 409,
    domain.TooLarge: 413,
    UnsupportedMediaType: 415,
    RangeNotSatisfiable: 416,
    Misdirected: 421,
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
DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeoutError)
RETRY_AFTER_SECONDS = 2


def register(app: Flask) -> None:
    app.register_error_handler(Exception, respond)


def respond(error: Exception) -> Response:
    """The error response for any exception; internal details go to the log only."""
    if isinstance(error, HTTPException):
        return _from_werkzeug(error)
    if isinstance(error, denied.DENIED):
        denied.note(error)
    response = failure(problem_of(error))
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="trainyard"'
    return response


def failure(problem: Problem) -> Response:
    """The error response in the caller's dialect."""
    response = dialect().failure(problem)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def problem_of(error: Exception) -> Problem:
    """The problem for an exception that is not a Werkzeug HTTPException."""
    is_transient = isinstance(error, DBAPIError) and (error.connection_invalidated or is_read_only(error))
    if isinstance(error, DATABASE_UNAVAILABLE) or is_transient:
        logger.warning("the database does not answer: %s", error)
        return _unavailable("the database does not answer; retry later")
    if isinstance(error, IntegrityError):
        # Log only the constraint, not the row, which may hold confidential values.
        rule = getattr(getattr(error.orig, "diag", None), "constraint_name", None) or type(error.orig).__name__
        logger.warning("a write conflicted with a concurrent one: %s", rule)
        return Problem(409, "CONFLICT", "a related object was changed or removed concurrently; read it again and retry")
    if isinstance(error, DataError):
        # Validation should have rejected the value earlier: log where it passed.
        logger.error("the database rejected a value", exc_info=error)
        return Problem(400, "INVALID_ARGUMENT", "a value exceeds what can be stored; use a smaller or shorter one")
    status = next((STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES), 500)
    if not isinstance(error, domain.TrainyardError) or status == 500:
        logger.error("a request failed", exc_info=error)
        return Problem(500, "INTERNAL", "internal error; the operator can find details in the log by the request id")
    if status == 503:
        logger.warning("%s", error)
        is_told = isinstance(error, domain.SandboxNotOpen)
        return _unavailable(error.message if is_told else "a dependency does not answer; retry later")
    details = error.details if isinstance(error, BadShape) else []
    if error.field is not None:
        details = [(error.field, error.message)]
    wait = error.retry_after_seconds if isinstance(error, domain.LimitExceeded) else None
    return Problem(status, error.code, error.message, details=details, retry_after=wait)


def stream_problem(error: Exception) -> dict[str, Any]:
    """The error object for a failure within a stream, after its status was sent."""
    body: dict[str, Any] = problem_body(problem_of(error))["error"]
    return body


def _unavailable(message: str) -> Problem:
    return Problem(503, "UNAVAILABLE", message, retry_after=RETRY_AFTER_SECONDS)


def _from_werkzeug(error: HTTPException) -> Response:
    status = error.code or 500
    messages = {
        404: "no such resource; the openapi.json of this API lists all of them",
        405: "this resource does not support the method; the header Allow lists the supported ones",
        413: "the body is too large; the default limit is 1 MiB",
    }
    code = HTTP_CODES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    response = failure(Problem(status, code, messages.get(status, "the request cannot be served")))
    for name, value in error.get_headers():
        if name in ("Allow", "Location"):
            response.headers[name] = value
    return response
