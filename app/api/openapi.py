"""The API's description, made from what every resource method declares, and a page to read it."""

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from flask import Blueprint, Flask, Response, current_app
from marshmallow import Schema
from werkzeug.routing import Rule

from app.api.context import BASES
from app.api.envelope import json_response
from app.api.operation import Operation, operation, operation_of
from app.schemas.queries import ListQuerySchema

blueprint = Blueprint("openapi", __name__)
VERSION = "1"
_ERRORS = {
    "400": "The request means something impossible", "401": "No key, or not a good one", "403": "Not allowed",
    "404": "No such thing, or not yours", "409": "Not possible in the present state", "413": "Body too large",
    "415": "Not JSON", "422": "Not of the documented shape", "429": "Too much at once", "501": "Not built yet",
    "503": "A part that this needs does not answer",
}  # fmt: skip
_META = {"type": "object", "properties": {"request_id": {"type": "string"}}}


@blueprint.get("/openapi.json")
@operation("This description", permission=None)
def openapi_json() -> Response:
    return json_response(description(current_app))


@blueprint.get("/docs")
@operation("This description as a page", permission=None, media="html")
def docs() -> Response:
    page = resources.files("app.api").joinpath("static/docs.html").read_text(encoding="utf-8")
    response = Response(page, mimetype="text/html")
    policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
    return response


def description(app: Flask) -> dict[str, Any]:
    """OpenAPI 3.1, with each path once: the other base path has the same resources."""
    return _description(app)


@cache
def _description(app: Flask) -> dict[str, Any]:
    marshmallow = MarshmallowPlugin(schema_name_resolver=_schema_name)  # type: ignore[arg-type] # it also takes False, its types say not so
    spec = APISpec(title="Trainyard", version=VERSION, openapi_version="3.1.0", plugins=[marshmallow])
    spec.components.security_scheme("key", {"type": "http", "scheme": "bearer"})
    spec.components.schema("Error", _error_schema())
    for rule in app.url_map.iter_rules():
        if not rule.rule.startswith(BASES[1]):
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                described = operation_of(app.view_functions[rule.endpoint])
                spec.path(_path(rule), operations={method.lower(): _operation(rule, method, described)})
    found: dict[str, Any] = spec.to_dict()
    return found


def _operation(rule: Rule, method: str, described: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": described.summary,
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', rule.rule)}".rstrip("_"),
        "parameters": [*_path_parameters(rule), *_query_parameters(described), *_header_parameters(described)],
        "responses": {str(described.status): _success(described), **_error_responses(described)},
    }
    if described.permission is not None:
        found["security"] = [{"key": []}]
        found["description"] = f"Needs the permission `{described.permission}`."
    if described.body is not None:
        content = {"application/json": {"schema": described.body}}
        found["requestBody"] = {"required": not described.body_optional, "content": content}
        found["parameters"].append({"in": "header", "name": "Idempotency-Key", "schema": {"type": "string"}})
    return found


def _path(rule: Rule) -> str:
    return re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", rule.rule)


def _path_parameters(rule: Rule) -> Iterator[dict[str, Any]]:
    for name in sorted(rule.arguments):
        yield {"in": "path", "name": name, "required": True, "schema": {"type": "string"}}


def _query_parameters(described: Operation) -> list[Any]:
    return [{"in": "query", "schema": described.query}] if described.query.fields else []


def _header_parameters(described: Operation) -> Iterator[dict[str, Any]]:
    for name, meaning in described.headers.items():
        yield {"in": "header", "name": name, "description": meaning, "schema": {"type": "string"}}


def _success(described: Operation) -> dict[str, Any]:
    if described.status == 204:
        return {"description": "Done"}
    media: dict[str, Any] = {}
    if described.media in ("json", "json or events"):
        media["application/json"] = {"schema": _envelope(_answer(described))}
    if described.media in ("events", "json or events"):
        media["text/event-stream"] = {"schema": {"type": "string"}}
    if described.media in ("bytes", "html"):
        kind = "text/html" if described.media == "html" else "application/octet-stream"
        media[kind] = {"schema": {"type": "string"}}
    return {"description": "Success", "content": media}


def _answer(described: Operation) -> Any:
    if described.answer is None:
        return {"type": "object"}
    if described.items is None:
        return described.answer
    return {
        "type": "object",
        "required": [described.items, "next_page_token", "total_count"],
        "properties": {
            described.items: {"type": "array", "items": described.answer},
            "next_page_token": {"type": "string"},
            "total_count": {"type": "integer"},
            "total_count_capped": {"type": "boolean"},
        },
    }


def _envelope(data: Any) -> dict[str, Any]:
    properties = {"status": {"const": "success"}, "data": data, "meta": _META}
    return {"type": "object", "required": ["status", "data", "meta"], "properties": properties}


def _error_responses(described: Operation) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    open_to_all = described.permission is None
    codes = ("422", "503") if open_to_all else tuple(_ERRORS)
    return {code: {"description": _ERRORS[code], "content": content} for code in codes if int(code) != described.status}


def _error_schema() -> dict[str, Any]:
    detail = {"type": "object", "properties": {"field": {"type": "string"}, "message": {"type": "string"}}}
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string"},
            "message": {"type": "string"},
            "details": {"type": "array", "items": detail},
            "retry_after": {"type": "integer"},
        },
    }
    properties = {"status": {"const": "error"}, "error": error, "meta": _META}
    return {"type": "object", "required": ["status", "error", "meta"], "properties": properties}


def _schema_name(schema: Schema | type[Schema] | str) -> str | bool:
    cls = schema if isinstance(schema, type) else type(schema)
    # A query is listed parameter by parameter, never referred to.
    return False if isinstance(schema, str) or issubclass(cls, ListQuerySchema) else cls.__name__.removesuffix("Schema")
