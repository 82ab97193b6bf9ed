"""What a client's calls raise.

ClientError
├── Unreachable              no answer, or the connection broke
├── BrokenContent            the download differs from what the server has recorded
└── ApiError                 the server refused: status, code, message, details, retry_after, request_id
    ├── InvalidRequest       400, 413, 415, 416, 422
    ├── Unauthenticated      401
    ├── Forbidden            403
    ├── NotFound             404
    ├── Conflict             409
    ├── LimitExceeded        429
    └── ServerError          5xx
        └── Unavailable      503
"""

from collections.abc import Mapping
from typing import Any

from trainyard.protocol.json import JSON


class ClientError(Exception):
    """A request did not succeed."""


class Unreachable(ClientError):
    """The server does not answer at the URL, or the connection broke; a retry may succeed."""


class BrokenContent(ClientError):
    """A file arrived complete, but differs from what the server has recorded."""


class ApiError(ClientError):
    """The server refused the request; ``code`` is its machine-readable name, ``details`` name fields."""

    def __init__(self, status: int, error: Mapping[str, Any], *, request_id: str = "") -> None:
        self.status = status
        self.code = str(error.get("code") or error.get("type") or "INTERNAL")  # OpenAI's errors may have only a type
        self.message = str(error.get("message", f"the server answered {status}"))
        self.details: list[dict[str, str]] = list(error.get("details") or [])
        self.retry_after: float | None = _seconds(error.get("retry_after"))
        self.request_id = request_id
        # For a single field the message is the rule itself, so it is not repeated with the field.
        listed = [detail for detail in self.details if detail.get("message") != self.message]
        fields = [detail["field"] for detail in self.details if detail not in listed and detail.get("field")]
        where = f" [{', '.join(fields)}]" if fields and not any(name in self.message for name in fields) else ""
        super().__init__("\n".join([f"{self.code}: {self.message}{where}", *map(_line, listed)]))


class InvalidRequest(ApiError):
    """The request is malformed or asks for something impossible; ``details`` name the fields."""


class Unauthenticated(ApiError):
    """No key, or one that is unknown, expired or revoked."""


class Forbidden(ApiError):
    """The key's role does not allow it."""


class NotFound(ApiError):
    """Does not exist, or belongs to another project."""


class Conflict(ApiError):
    """Not possible in the present state, or an idempotency key that was used for another request."""


class LimitExceeded(ApiError):
    """Too many requests, or a quota; ``retry_after`` is the number of seconds to wait."""


class ServerError(ApiError):
    """A fault on the server's side."""


class Unavailable(ServerError):
    """A component that the server needs does not answer."""


_CLASSES: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    416: InvalidRequest,
    422: InvalidRequest,
    429: LimitExceeded,
    503: Unavailable,
}


def api_error(status: int, error: Mapping[str, Any], *, request_id: str = "") -> ApiError:
    """The error class for the status."""
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    return kind(status, error, request_id=request_id)


def _seconds(given: JSON) -> float | None:
    try:
        return None if given is None else max(0.0, float(given))
    except (TypeError, ValueError):
        return None  # the header may also hold a date, which Trainyard never sends


def _line(detail: Mapping[str, str]) -> str:
    return f"  {detail.get('field', '')}: {detail.get('message', '')}"
