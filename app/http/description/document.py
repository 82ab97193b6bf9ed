"""The complete OpenAPI document: paths, operations grouped by tag, and shared schemas."""

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
from app.http.dialect import Dialect
from app.http.envelope import BodySchema
from app.http.operation import Operation, operation_of

VERSION = "1"
SITE = "/"  # leads browsers to the dashboard, and is no part of an API
_TAGS = {
    "jobs": "Submit, monitor and control jobs",
    "results": "Checkpoints, artifacts and reports of jobs",
    "inference": "Run models over records: answers, likelihoods, scores and vectors",
    "services": "Models that answer requests, their replicas and usage",
    "sweeps": "Search for hyperparameters, with trials that are jobs",
    "streams": "Server-sent events: logs, metrics and job events",
    "cluster": "Queues, nodes and operator metrics",
    "access": "Projects, API keys and the audit log",
    "webhooks": "Events sent to other systems",
    "data": "Validate data before training on it",
    "tables": "Training types and error types",
    "service": "API description and health checks",
    "later": "Reserved for a later version",
}


@cache
def description(app: Flask, dialect: Dialect) -> dict[str, Any]:
    """OpenAPI 3.1 of one dialect; each path appears under the first base path only."""
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
        {"type": "http", "scheme": "bearer", "description": "An API key: `ty_…`, created by `trainyard keys create`"},
    )
    spec.components.schema(ERROR, **_component(dialect.error_schema()))
    for rule, method, declared in operations:
        described = described_operation(rule, method, declared, dialect)
        spec.path(path_of(rule), operations={method.lower(): {"tags": [_tag(rule, declared)], **described}})
    found: dict[str, Any] = spec.to_dict()
    return found


def _component(schema: BodySchema) -> dict[str, Any]:
    """The apispec keyword argument for a JSON Schema or a marshmallow schema."""
    return {"component" if isinstance(schema, dict) else "schema": schema}


def _operations(app: Flask, dialect: Dialect) -> Iterator[tuple[Rule, str, Operation]]:
    for rule in app.url_map.iter_rules():
        if rule.rule == SITE:
            continue
        if dialect_of(app, rule.rule) is dialect and dialect.describes(rule.rule):
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield rule, method, operation_of(app.view_functions[rule.endpoint])


# The first match decides the tag.
_BY_PATH = (
    ("/webhooks", "webhooks"),
    ("/inference", "inference"),
    ("/services", "services"),
    ("/usage", "services"),
    ("/sweeps", "sweeps"),
    ("/data/", "data"),
    ("-types", "tables"),
    ("/jobs", "jobs"),
    ("/compare", "jobs"),
    ("/queue", "cluster"),
    ("/nodes", "cluster"),
    ("/cluster", "cluster"),
    ("/keys", "access"),
    ("/projects", "access"),
    ("/audit", "access"),
    ("/metrics", "cluster"),
)
_RESULTS = ("/artifacts", "/checkpoints", "/report", "/attempts", "/model-card", "/lineage", "/wandb")


def _tag(rule: Rule, declared: Operation) -> str:
    if declared.status == 501:
        return "later"
    if "events" in declared.media:
        return "streams"
    if any(part in rule.rule for part in _RESULTS):
        return "results"
    return next((tag for part, tag in _BY_PATH if part in rule.rule), "service")
