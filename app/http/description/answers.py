"""The possible response statuses of an operation, with their headers and media types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from werkzeug.routing import Rule

from app.http.dialect import Dialect
from app.http.envelope import BodySchema
from app.http.operation import Operation
from app.security.permissions import PERMISSIONS

ERROR = "Error"
_TEXT = {"type": "string"}
_EVENT = {
    "type": "object",
    "description": "One event. The final one, sent when the job has ended, has the data `[DONE]`; "
    "`event: error` reports a failure of the stream with `code` and `message`",
    "required": ["data"],
    "properties": {
        "id": {"type": "string", "description": "Resume after this event by sending it as Last-Event-ID"},
        "event": {"type": "string", "description": "`error`, or `message` (the default)"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
# Kind of media → its media type and schema.
_MEDIA: dict[str, tuple[str, dict[str, Any]]] = {
    "events": ("text/event-stream", _EVENT),
    "bytes": ("application/octet-stream", _TEXT),
    "run file": ("application/octet-stream", _TEXT),
    "html": ("text/html", _TEXT),
    "text": ("text/plain", _TEXT),
    "picture": ("image/svg+xml", _TEXT),
    "markdown": ("text/markdown", _TEXT),
    "csv": ("text/csv", _TEXT),
}


@dataclass(frozen=True)
class RoutedOperation:
    """An operation with its route, method and dialect."""

    rule: Rule
    method: str
    declared: Operation
    dialect: Dialect

    @property
    def is_open(self) -> bool:
        return self.declared.permission is None

    @property
    def streams(self) -> bool:
        return "events" in self.declared.media

    @property
    def may_be_missing(self) -> bool:
        return not self.is_open  # a path, a filter, or the header X-Project

    @property
    def takes_tokens(self) -> bool:
        """Whether it accepts a token that an earlier response issued, such as a page token, which may be invalid."""
        return self.streams or "page_token" in self.declared.query.fields

    @property
    def any_role_may(self) -> bool:
        return self.is_open or all(self.declared.permission in allowed for allowed in PERMISSIONS.values())


@dataclass(frozen=True)
class ErrorStatus:
    """An error status, its meaning, and the endpoints that may return it."""

    status: int
    meaning: str
    applies: Callable[[RoutedOperation], bool]


_REFUSALS = (
    ErrorStatus(
        400, "Invalid request, or malformed JSON", lambda endpoint: endpoint.method != "GET" or endpoint.takes_tokens
    ),
    ErrorStatus(401, "Missing or invalid API key", lambda endpoint: not endpoint.is_open),
    ErrorStatus(403, "The key lacks the required permission", lambda endpoint: not endpoint.any_role_may),
    ErrorStatus(404, "Not found, or owned by another project", lambda endpoint: endpoint.may_be_missing),
    ErrorStatus(409, "Conflicts with the current state", lambda endpoint: endpoint.method != "GET"),
    ErrorStatus(413, "The body is too large", lambda endpoint: endpoint.declared.body is not None),
    ErrorStatus(415, "The body is not JSON in UTF-8", lambda endpoint: endpoint.declared.body is not None),
    ErrorStatus(416, "The range lies outside the file", lambda endpoint: endpoint.declared.media == "bytes"),
    ErrorStatus(422, "Does not match the documented schema", lambda _: True),
    ErrorStatus(429, "A limit is exceeded; retry after `Retry-After` seconds", lambda endpoint: not endpoint.is_open),
    ErrorStatus(503, "A dependency is unavailable; retry later", lambda _: True),
)
_SECONDS = {"type": "integer", "minimum": 1}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to send a key", "schema": {"type": "string"}}},
    429: {"Retry-After": {"description": "Seconds to wait", "schema": _SECONDS}},
    503: {"Retry-After": {"description": "Seconds to wait", "schema": _SECONDS}},
}
_REQUEST_ID = {"X-Request-ID": {"description": "The id of this request, as in `meta`", "schema": {"type": "string"}}}
_OF_FILES = {
    "ETag": {"description": "The SHA-256 of the whole file", "schema": {"type": "string"}},
    "Accept-Ranges": {"description": "Byte ranges are supported", "schema": {"const": "bytes"}},
    "Content-Disposition": {"description": "Save the file instead of displaying it", "schema": {"type": "string"}},
}
_OF_A_PART = {"Content-Range": {"description": "The byte range of this response", "schema": {"type": "string"}}}


def answers_of(endpoint: RoutedOperation) -> dict[str, Any]:
    """All documented responses; a response with any other status is a server bug."""
    refused = {refusal.status: refusal.meaning for refusal in _REFUSALS if _may(refusal, endpoint)}
    found = {str(endpoint.dialect.status_of(status)): _refused(status, meaning) for status, meaning in refused.items()}
    own = {str(status): _refused(status, meaning) for status, meaning in endpoint.dialect.also_refuses.items()}
    return {**_successes(endpoint), **found, **(own if not endpoint.is_open else {})}


def _may(refusal: ErrorStatus, endpoint: RoutedOperation) -> bool:
    return refusal.applies(endpoint) or refusal.status in endpoint.declared.refuses


def _successes(endpoint: RoutedOperation) -> dict[str, Any]:
    declared = endpoint.declared
    if declared.status == 501:
        return {"501": _refused(501, "Not implemented yet")}
    found = {str(declared.status): _success(endpoint, declared.status, declared.answer)}
    for status, answer in declared.also.items():
        found[str(status)] = _success(endpoint, status, answer)
    if declared.media == "bytes":
        found["206"] = {**found["200"], "description": "The requested range"}
        found["206"]["headers"] = {**found["206"]["headers"], **_OF_A_PART}
    return found


def _success(endpoint: RoutedOperation, status: int, answer: BodySchema | None) -> dict[str, Any]:
    if status == 204:
        return {"description": "Done", "headers": _REQUEST_ID}
    declared = endpoint.declared
    media: dict[str, Any] = {}
    if declared.media in ("json", "json or events", "json or picture", "json or markdown", "json or csv"):
        media["application/json"] = {"schema": endpoint.dialect.answer_schema(answer, declared.items)}
    if declared.media == "document":
        media["application/json"] = {"schema": {"type": "object"}}
    for kind, (name, content) in _MEDIA.items():
        if kind in declared.media:
            media[name] = {"schema": content}
    return {"description": "Success", "headers": _success_headers(endpoint, status), "content": media}


def _success_headers(endpoint: RoutedOperation, status: int) -> dict[str, Any]:
    found = dict(_REQUEST_ID)
    if status == 201:
        found["Location"] = {"description": "URL of the created resource", "schema": {"type": "string"}}
    if endpoint.declared.media == "bytes":
        found |= _OF_FILES
    if endpoint.declared.body is not None and endpoint.declared.remembers:
        found["Idempotency-Replayed"] = {
            "description": "`true` if this is a replay of the stored first response",
            "schema": {"const": "true"},
        }
    return found


def _refused(status: int, meaning: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ERROR}"}}}
    return {"description": meaning, "headers": {**_REQUEST_ID, **_HEADERS.get(status, {})}, "content": content}
