"""The whole document: every path once, its operations by what they are about, and the schemas that they share."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from apispec import APISpec
from flask import Flask
from werkzeug.routing import Rule

from app.http.context import dialect_of
from app.http.description.answers import ERROR
from app.http.description.operations import described_operation, path_of
from app.http.description.schemas import StrictSchemas
from app.http.dialect import NATIVE, Dialect
from app.http.operation import Operation, operation_of

VERSION = "1"
_TAGS = {
    "jobs": "Submit jobs, see what becomes of them, control them",
    "results": "What a job leaves behind",
    "streams": "What happens, as it happens",
    "cluster": "Queues, nodes and figures for operators",
    "access": "Projects, API keys and who did what",
    "webhooks": "Events sent to other systems",
    "data": "Look at data before training on it",
    "tables": "What can be trained, and why jobs fail",
    "service": "This description, and whether the service is there",
    "later": "Documented for a later version",
}


@cache
def description(app: Flask, dialect: Dialect) -> dict[str, Any]:
    """OpenAPI 3.1 of one dialect, with each path once: its other base paths have the same resources."""
    operations = list(_operations(app, dialect))
    bodies = frozenset(type(declared.body) for _, _, declared in operations if declared.body is not None)
    spec = APISpec(
        title=dialect.title,
        version=VERSION,
        openapi_version="3.1.0",
        plugins=[StrictSchemas(bodies)],
        info={"description": dialect.about, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        tags=[{"name": name, "description": meaning} for name, meaning in _TAGS.items()],
        servers=[{"url": "/", "description": "This server"}],
    )
    spec.components.security_scheme(
        "key",
        {"type": "http", "scheme": "bearer", "description": "An API key: `ty_…`, made by `trainyard keys create`"},
    )
    spec.components.schema(ERROR, **_component(dialect.error_schema()))
    for rule, method, declared in operations:
        told = described_operation(rule, method, declared, dialect)
        spec.path(path_of(rule), operations={method.lower(): {"tags": [_tag(rule, declared)], **told}})
    found: dict[str, Any] = spec.to_dict()
    return found


def _component(schema: Any) -> dict[str, Any]:
    """How apispec is told of JSON Schema, or of a schema of marshmallow."""
    return {"component" if isinstance(schema, dict) else "schema": schema}


def _operations(app: Flask, dialect: Dialect) -> Iterator[tuple[Rule, str, Operation]]:
    for rule in app.url_map.iter_rules():
        # The native paths are there below a second base, too; those of a foreign one are different paths.
        is_told = dialect is not NATIVE or dialect.base_of(rule.rule) in ("", dialect.bases[0])
        if dialect_of(app, rule.rule) is dialect and is_told:
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield rule, method, operation_of(app.view_functions[rule.endpoint])


# The first that a path contains or an operation is, in this order.
_BY_PATH = (
    ("/webhooks", "webhooks"), ("/data/", "data"), ("-types", "tables"), ("/jobs", "jobs"), ("/queue", "cluster"),
    ("/nodes", "cluster"), ("/cluster", "cluster"), ("/keys", "access"), ("/projects", "access"), ("/audit", "access"),
    ("/metrics", "cluster"),
)  # fmt: skip
_RESULTS = ("/artifacts", "/checkpoints", "/report", "/attempts")


def _tag(rule: Rule, declared: Operation) -> str:
    if declared.status == 501:
        return "later"
    if "events" in declared.media:
        return "streams"
    if any(part in rule.rule for part in _RESULTS):
        return "results"
    return next((tag for part, tag in _BY_PATH if part in rule.rule), "service")
