"""Which statuses an operation may answer, with the headers and the media of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from werkzeug.routing import Rule

from app.http.dialect import Dialect
from app.http.operation import Operation
from app.security.permissions import PERMISSIONS

ERROR = "Error"
_TEXT = {"type": "string"}
_EVENT = {
    "type": "object",
    "description": "Each event. The last one, when the job has ended and all was sent, has the data `[DONE]`; "
    "`event: error` says with `code` and `message` what went wrong on the way",
    "required": ["data"],
    "properties": {
        "id": {"type": "string", "description": "To go on from, as Last-Event-ID"},
        "event": {"type": "string", "description": "`error`, or as is usual: `message`"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
# Kind of media → its name on the wire, and what it holds.
_MEDIA: dict[str, tuple[str, dict[str, Any]]] = {
    "events": ("text/event-stream", _EVENT),
    "bytes": ("application/octet-stream", _TEXT),
    "html": ("text/html", _TEXT),
    "text": ("text/plain", _TEXT),
}


@dataclass(frozen=True)
class Asked:
    """An operation as it is reached."""

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
    def names_another(self) -> bool:
        return not self.is_open  # a path, a filter, or the header X-Project

    @property
    def opens_tokens(self) -> bool:
        """Whether it takes something that it gave out before and that may not be one of its own."""
        return self.streams or "page_token" in self.declared.query.fields

    @property
    def everybody_may(self) -> bool:
        return self.is_open or all(self.declared.permission in allowed for allowed in PERMISSIONS.values())


@dataclass(frozen=True)
class Refusal:
    """A status, what it means, and which operations may answer with it."""

    status: int
    meaning: str
    by: Callable[[Asked], bool]


_REFUSALS = (
    Refusal(400, "Something impossible, or no JSON", lambda asked: asked.method != "GET" or asked.opens_tokens),
    Refusal(401, "No key, or not a good one", lambda asked: not asked.is_open),
    Refusal(403, "Not allowed to this key", lambda asked: not asked.everybody_may),
    Refusal(404, "No such thing, or another project's", lambda asked: asked.names_another),
    Refusal(409, "Not possible in the present state", lambda asked: asked.method != "GET"),
    Refusal(413, "The body is too large", lambda asked: asked.declared.body is not None),
    Refusal(415, "The body is not JSON in UTF-8", lambda asked: asked.declared.body is not None),
    Refusal(416, "The range lies outside the file", lambda asked: asked.declared.media == "bytes"),
    Refusal(422, "Not of the documented shape", lambda _: True),
    Refusal(429, "Too much at once; try again after the time that it says", lambda asked: not asked.is_open),
    Refusal(503, "A part that this needs does not answer; try again", lambda _: True),
)  # fmt: skip
_SECONDS = {"type": "integer", "minimum": 1}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to send a key", "schema": {"type": "string"}}},
    429: {"Retry-After": {"description": "Seconds to wait", "schema": _SECONDS}},
    503: {"Retry-After": {"description": "Seconds to wait", "schema": _SECONDS}},
}
_REQUEST_ID = {
    "X-Request-ID": {"description": "The id of this request, as in `meta`", "schema": {"type": "string"}},
}
_OF_FILES = {
    "ETag": {"description": "The SHA-256 of the whole file", "schema": {"type": "string"}},
    "Accept-Ranges": {"description": "Ranges of bytes can be asked for", "schema": {"const": "bytes"}},
    "Content-Disposition": {"description": "To be stored, not shown", "schema": {"type": "string"}},
}
_OF_A_PART = {"Content-Range": {"description": "Which bytes these are", "schema": {"type": "string"}}}


def answers_of(asked: Asked) -> dict[str, Any]:
    """All of them; a status that is not among them is a fault of ours."""
    refused = {refusal.status: refusal.meaning for refusal in _REFUSALS if _may(refusal, asked)}
    found = {str(asked.dialect.status_of(status)): _refused(status, meaning) for status, meaning in refused.items()}
    own = {str(status): _refused(status, meaning) for status, meaning in asked.dialect.also_refuses.items()}
    return {**_successes(asked), **found, **(own if not asked.is_open else {})}


def _may(refusal: Refusal, asked: Asked) -> bool:
    return refusal.by(asked) or refusal.status in asked.declared.refuses


def _successes(asked: Asked) -> dict[str, Any]:
    declared = asked.declared
    if declared.status == 501:
        return {"501": _refused(501, "Not built yet")}
    found = {str(declared.status): _success(asked, declared.status, declared.answer)}
    for status, answer in declared.also.items():
        found[str(status)] = _success(asked, status, answer)
    if declared.media == "bytes":
        found["206"] = {**found["200"], "description": "The part that was asked for"}
        found["206"]["headers"] = {**found["206"]["headers"], **_OF_A_PART}
    return found


def _success(asked: Asked, status: int, answer: Any) -> dict[str, Any]:
    if status == 204:
        return {"description": "Done", "headers": _REQUEST_ID}
    declared = asked.declared
    media: dict[str, Any] = {}
    if declared.media in ("json", "json or events"):
        media["application/json"] = {"schema": asked.dialect.answer_schema(answer, declared.items)}
    if declared.media == "document":
        media["application/json"] = {"schema": {"type": "object"}}
    for kind, (name, content) in _MEDIA.items():
        if kind in declared.media:
            media[name] = {"schema": content}
    return {"description": "Success", "headers": _success_headers(asked, status), "content": media}


def _success_headers(asked: Asked, status: int) -> dict[str, Any]:
    found = dict(_REQUEST_ID)
    if status == 201:
        found["Location"] = {"description": "Where what was made can be read", "schema": {"type": "string"}}
    if asked.declared.media == "bytes":
        found |= _OF_FILES
    if asked.declared.body is not None:
        found["Idempotency-Replayed"] = {
            "description": "`true` when this is the first answer again", "schema": {"const": "true"},
        }  # fmt: skip
    return found


def _refused(status: int, meaning: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ERROR}"}}}
    return {"description": meaning, "headers": {**_REQUEST_ID, **_HEADERS.get(status, {})}, "content": content}
