"""What a client's calls raise.

ClientError
├── Unreachable              nobody answers, or the connection broke
├── BrokenContent            what was downloaded is not what the server has recorded
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


class ClientError(Exception):
    """A request did not succeed."""


class Unreachable(ClientError):
    """Nobody answers at the URL, or the connection broke; asking again may cure it."""


class BrokenContent(ClientError):
    """A file arrived whole, but not as the server has recorded it."""


class ApiError(ClientError):
    """The server refused; ``code`` is its machine-readable name, ``details`` name fields."""

    def __init__(self, status: int, error: Mapping[str, Any], *, request_id: str = "") -> None:
        self.status = status
        self.code = str(error.get("code", "INTERNAL"))
        self.message = str(error.get("message", f"the server answered {status}"))
        self.details: list[dict[str, str]] = list(error.get("details") or [])
        self.retry_after: float | None = _seconds(error.get("retry_after"))
        self.request_id = request_id
        # A single field's rule is the message itself: said once, and the field with it.
        told = [detail for detail in self.details if detail.get("message") != self.message]
        fields = [detail["field"] for detail in self.details if detail not in told and detail.get("field")]
        where = f" [{', '.join(fields)}]" if fields and not any(name in self.message for name in fields) else ""
        super().__init__("\n".join([f"{self.code}: {self.message}{where}", *map(_line, told)]))


class InvalidRequest(ApiError):
    """The request is malformed or means something impossible; ``details`` say which fields."""


class Unauthenticated(ApiError):
    """No key, or one that is unknown, expired or revoked."""


class Forbidden(ApiError):
    """The key's role does not allow it."""


class NotFound(ApiError):
    """Not there, or another project's."""


class Conflict(ApiError):
    """Not possible in the present state, or an idempotency key that was used for another request."""


class LimitExceeded(ApiError):
    """Too many requests, or a quota; ``retry_after`` says in how many seconds to ask again."""


class ServerError(ApiError):
    """A fault on the server's side."""


class Unavailable(ServerError):
    """A part that the server needs does not answer."""


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
    """Of the class that its status has."""
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    return kind(status, error, request_id=request_id)


def _seconds(given: Any) -> float | None:
    try:
        return None if given is None else max(0.0, float(given))
    except (TypeError, ValueError):
        return None  # the header may also hold a date, which nobody here sends


def _line(detail: Mapping[str, str]) -> str:
    return f"  {detail.get('field', '')}: {detail.get('message', '')}"
