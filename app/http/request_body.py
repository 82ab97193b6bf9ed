"""Strict JSON: rejects documents that JSON parsers interpret differently."""

import json
import math
from contextlib import nullcontext
from typing import Any, NoReturn, Protocol

from flask import g, request
from marshmallow import Schema, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from app.domain.errors import InvalidRequest
from app.http.context import backend, holder
from app.http.errors import BadShape, MalformedJson, UnsupportedMediaType
from app.schemas.problems import content_problem, flat

_MAX_DIGITS = 100


class Reader(Protocol):
    """Parses a request body into the argument of a resource method."""

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        """The document as sent. Raises InvalidRequest, UnsupportedMediaType or BadShape."""

    def load(self, document: dict[str, Any]) -> object:
        """The validated document. Raises BadShape with every problem."""


class JsonBody:
    """Reads a JSON object and validates it by a schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        return read_body(optional=optional, max_nesting=max_nesting)

    def load(self, document: dict[str, Any]) -> Any:  # noqa: ANN401 – as validated
        return validated(self._schema, document)


class _Refused(ValueError):
    """JSON that the grammar allows and this parser rejects."""


def read_body(*, optional: bool, max_nesting: int) -> dict[str, Any]:
    """The JSON object in the request's body; an ``optional`` body may be empty."""
    raw = whole_body()
    if optional and not raw.strip():
        return {}
    _check_media_type()
    document = parse(raw)
    if not isinstance(document, dict):
        raise InvalidRequest("the body must be a JSON object")
    # Without an escape no text has such characters, and without so many brackets nothing is nested too deeply.
    if b"\\u" in raw or raw.count(b"{") + raw.count(b"[") > max_nesting:
        check_content(document, max_nesting=max_nesting)
    return document


def whole_body() -> bytes:
    """The complete request body. Raises MalformedJson if it is truncated, and LimitExceeded."""
    # A client that sends slowly, or stops, holds a thread for as long as gunicorn waits for the body.
    with backend().bodies.held(holder()) if "caller" in g else nullcontext():
        raw = request.get_data()
    if request.content_length is None and len(raw) >= (request.max_content_length or math.inf):
        raise RequestEntityTooLarge  # Werkzeug silently truncates a chunked body at the limit
    if len(raw) < (request.content_length or 0):
        # gunicorn truncates the body when the client disconnects; the rest may have changed its meaning.
        raise MalformedJson("the body is shorter than its Content-Length; send the complete body")
    return raw


def parse(raw: bytes) -> object:
    """The value of a JSON text. Raises MalformedJson, also for NaN, duplicate keys and oversized numbers."""
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
    except RecursionError as error:
        raise MalformedJson("the JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise MalformedJson("the body is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise MalformedJson(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except _Refused as error:
        raise MalformedJson(str(error)) from error


def check_content(document: object, *, max_nesting: int) -> None:
    """Reject nesting beyond the limit and characters that a database cannot store. Raises MalformedJson or BadShape."""
    problem = content_problem(document, max_nesting=max_nesting)
    if problem is None:
        return
    if problem.path is None:
        raise MalformedJson(problem.message)
    raise BadShape([(problem.path, problem.message)])


def validated(schema: Schema, document: dict[str, Any]) -> Any:  # noqa: ANN401 – a dictionary, or what post_load makes
    """What the schema makes of the document. Raises BadShape with every problem."""
    try:
        return schema.load(document)
    except ValidationError as error:
        raise BadShape(flat(error.messages, document)) from error


def _check_media_type() -> None:
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if request.mimetype != "application/json" or charset not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("send JSON in UTF-8 with the header Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("send the body without a Content-Encoding")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"the name {twice[:64]!r} appears twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise _Refused(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused("a number is too large")
    return value


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _Refused("a number is too large")
    return int(text)
