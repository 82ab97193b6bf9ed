"""The OpenAPI operation object: summary, parameters, request body and examples."""

import re
from collections.abc import Iterator
from typing import Any

from werkzeug.routing import Rule

from app.http.description.answers import RoutedOperation, answers_of
from app.http.description.examples import example_of
from app.http.dialect import Dialect
from app.http.operation import Operation
from app.schemas.jobs import LABEL_KEY

# Schemas of path parameters; other values match no resource.
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
    "description": "Repeating a request with the same key within 24 hours returns the first response again",
    "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$", "maxLength": 255},
}
_LAST_EVENT_ID = {
    "in": "header",
    "name": "Last-Event-ID",
    "description": "The last event id received: the stream resumes after it",
    "schema": {"type": "string"},
}
_PROJECT = {
    "in": "header",
    "name": "X-Project",
    "description": "The project to act in, for keys with access to several; defaults to the key's own project",
    "schema": {"type": "string", "maxLength": 63},
}
_OF_FILES = (
    {
        "in": "header",
        "name": "Range",
        "description": "One range: bytes=0-1023, bytes=1024- or bytes=-1024",
        "schema": {"type": "string"},
    },
    {
        "in": "header",
        "name": "If-Range",
        "description": "An ETag: return the whole file if it has changed",
        "schema": {"type": "string"},
    },
)


def described_operation(rule: Rule, method: str, declared: Operation, dialect: Dialect) -> dict[str, Any]:
    """The OpenAPI operation object, without tags."""
    endpoint = RoutedOperation(rule, method, declared, dialect)
    found: dict[str, Any] = {
        "summary": declared.summary,
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', rule.rule)}".rstrip("_"),
        "parameters": [*_path_parameters(rule), *_query_parameters(declared), *_header_parameters(endpoint)],
        "responses": answers_of(endpoint),
    }
    if declared.permission is not None:
        found["security"] = [{"key": []}]
        found["description"] = f"Requires the permission `{declared.permission}`."
    if declared.body is not None:
        content: dict[str, Any] = {"schema": declared.body}
        if (example := example_of(declared.body)) is not None:
            content["example"] = example
        found["requestBody"] = {"required": not declared.body_optional, "content": {declared.takes: content}}
    return found


def path_of(rule: Rule) -> str:
    """The rule as an OpenAPI path template."""
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
            "description": "`labels.KEY=VALUE`, repeatable: only those with all of these labels",
            "style": "form",
            "explode": True,
            "schema": {
                "type": "object",
                "propertyNames": {"pattern": rf"^labels\.(?:{LABEL_KEY.pattern})$"},
                "additionalProperties": {"type": "string"},
                "examples": [{"labels.team": "support"}],
            },
        }


def _header_parameters(endpoint: RoutedOperation) -> Iterator[dict[str, Any]]:
    declared = endpoint.declared
    for name, meaning in declared.headers.items():
        yield {"in": "header", "name": name, "description": meaning, "schema": {"type": "string"}}
    if not endpoint.is_open:
        yield _PROJECT
    if declared.body is not None and not endpoint.is_open and declared.remembers:
        yield _IDEMPOTENCY_KEY
    if endpoint.streams and endpoint.method == "GET":
        yield _LAST_EVENT_ID
    if declared.media == "bytes":
        yield from _OF_FILES
