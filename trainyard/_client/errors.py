"""What a client's calls raise.

ClientError
├── Unreachable              no answer, or the connection broke
│   └── NoServer             nothing listens there
├── BrokenContent            the download differs from what the server has recorded
├── AmbiguousHandle          several jobs have the name, or an id that ends so
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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainyard.protocol.json import JSON

if TYPE_CHECKING:
    from trainyard.records import Job


class ClientError(Exception):
    """A request did not succeed."""


class Unreachable(ClientError):
    """The server does not answer at the URL, or the connection broke; a retry may succeed."""


class NoServer(Unreachable):
    """No connection could be made: nothing listens at the URL, or its host is unknown or away.

    ``refused_here``: this machine itself refused, so that no server runs there at the moment.
    """

    def __init__(self, message: str, *, refused_here: bool = False) -> None:
        super().__init__(message)
        self.refused_here = refused_here


class BrokenContent(ClientError):
    """A file arrived complete, but differs from what the server has recorded."""


MOST_COUNTED = 20  # the server finds one more at most


class AmbiguousHandle(ClientError):
    """Several jobs have this name, or an id that ends so; ``matches`` are the newest of them, of ``count``."""

    def __init__(self, handle: str, matches: "Sequence[Job]", count: int) -> None:
        self.handle, self.matches, self.count = handle, matches, count
        many = f"more than {MOST_COUNTED}" if count > MOST_COUNTED else str(count)
        super().__init__(f"{handle!r} stands for {many} jobs; name one by its id")


class ApiError(ClientError):
    """The server refused the request; ``code`` is its machine-readable name, ``details`` name fields."""

    def __init__(self, status: int, error: Mapping[str, Any], *, request_id: str = "") -> None:
        self.status = status
        self.code = str(error.get("code") or error.get("type") or "INTERNAL")  # OpenAI's errors may have only a type
        self.message = str(error.get("message", f"the server answered {status}"))
        self.details: list[dict[str, str]] = list(error.get("details") or [])
        self.retry_after: float | None = _seconds(error.get("retry_after"))
        self.request_id = request_id
        # A detail that the message says itself, with or without the field, is not repeated.
        listed = [detail for detail in self.details if not self._is_said(detail)]
        fields = [detail["field"] for detail in self.details if detail not in listed and detail.get("field")]
        where = f" [{', '.join(fields)}]" if fields and not any(name in self.message for name in fields) else ""
        super().__init__("\n".join([f"{self.code}: {self.message}{where}", *map(_line, listed)]))

    def _is_said(self, detail: Mapping[str, str]) -> bool:
        text = detail.get("message", "")
        return self.message in (text, f"{detail.get('field', '')}: {text}") or self.message.startswith(
            f"{_line(detail).strip()} (and "
        )


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
