"""One operation: what it is called, what it takes, and with which examples."""

import re
from collections.abc import Iterator
from typing import Any

from werkzeug.routing import Rule

from app.http.description.answers import Asked, answers_of
from app.http.description.examples import example_of
from app.http.dialect import Dialect
from app.http.operation import Operation
from app.schemas.jobs import LABEL_KEY

# What a path's values look like; a value of another form names nothing that exists.
_PATH_VALUES = {
    "job_id": {"type": "string", "maxLength": 64, "examples": ["job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"]},
    "key_id": {"type": "string", "maxLength": 64, "examples": ["key-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11"]},
    "webhook_id": {"type": "string", "maxLength": 64},
    "delivery_id": {"type": "string", "maxLength": 64},
    "path": {"type": "string", "maxLength": 1024, "examples": ["model.safetensors"]},
}
_OTHER_VALUE = {"type": "string", "maxLength": 128, "examples": ["default"]}
_IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "description": "The same key with the same request within 24 hours gives the first answer again",
    "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$", "maxLength": 255},
}
_LAST_EVENT_ID = {
    "in": "header",
    "name": "Last-Event-ID",
    "description": "The last id that was seen: the stream goes on after it",
    "schema": {"type": "string"},
}
_PROJECT = {
    "in": "header",
    "name": "X-Project",
    "description": "Act within this project; for keys that see more than one. Default the key's own project",
    "schema": {"type": "string", "maxLength": 63},
}
_OF_FILES = (
    {"in": "header", "name": "Range", "description": "One range: bytes=0-1023, bytes=1024- or bytes=-1024",
     "schema": {"type": "string"}},
    {"in": "header", "name": "If-Range", "description": "An ETag: the whole file, should it have changed meanwhile",
     "schema": {"type": "string"}},
)  # fmt: skip


def described_operation(rule: Rule, method: str, declared: Operation, dialect: Dialect) -> dict[str, Any]:
    """All of OpenAPI's operation object but its tags."""
    asked = Asked(rule, method, declared, dialect)
    found: dict[str, Any] = {
        "summary": declared.summary,
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', rule.rule)}".rstrip("_"),
        "parameters": [*_path_parameters(rule), *_query_parameters(declared), *_header_parameters(asked)],
        "responses": answers_of(asked),
    }
    if declared.permission is not None:
        found["security"] = [{"key": []}]
        found["description"] = f"Needs the permission `{declared.permission}`."
    if declared.body is not None:
        content: dict[str, Any] = {"schema": declared.body}
        if (example := example_of(declared.body)) is not None:
            content["example"] = example
        found["requestBody"] = {"required": not declared.body_optional, "content": {declared.takes: content}}
    return found


def path_of(rule: Rule) -> str:
    """The rule as OpenAPI writes it."""
    return re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", rule.rule)


def _path_parameters(rule: Rule) -> Iterator[dict[str, Any]]:
    for name in sorted(rule.arguments):
        yield {"in": "path", "name": name, "required": True, "schema": dict(_PATH_VALUES.get(name, _OTHER_VALUE))}


def _query_parameters(declared: Operation) -> Iterator[Any]:
    if declared.query.fields:
        yield {"in": "query", "schema": declared.query}
    if "labels" in declared.query.fields:
        yield {
            "in": "query",
            "name": "labels",
            "description": "`labels.KEY=VALUE`, as often as needed: jobs that have all of these labels",
            "style": "form",
            "explode": True,
            "schema": {
                "type": "object",
                "propertyNames": {"pattern": rf"^labels\.(?:{LABEL_KEY.pattern})$"},
                "additionalProperties": {"type": "string"},
                "examples": [{"labels.team": "support"}],
            },
        }


def _header_parameters(asked: Asked) -> Iterator[dict[str, Any]]:
    declared = asked.declared
    for name, meaning in declared.headers.items():
        yield {"in": "header", "name": name, "description": meaning, "schema": {"type": "string"}}
    if not asked.is_open:
        yield _PROJECT
    if declared.body is not None and not asked.is_open:
        yield _IDEMPOTENCY_KEY
    if asked.streams:
        yield _LAST_EVENT_ID
    if declared.media == "bytes":
        yield from _OF_FILES
