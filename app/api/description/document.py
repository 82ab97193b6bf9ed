"""The whole document: every path once, its operations by what they are about, and the schemas that they share."""

from collections.abc import Iterator
from typing import Any

from apispec import APISpec
from flask import Flask
from werkzeug.routing import Rule

from app.api.context import BASES
from app.api.description.answers import ERROR, error_schema
from app.api.description.operations import described_operation, path_of
from app.api.description.schemas import StrictSchemas
from app.api.operation import Operation, operation_of

VERSION = "1"
_ABOUT = """
Training jobs in, trained models out. `docs/api.md` says what a job document means.

- Success is `{"status":"success","data":…,"meta":{"request_id":…}}`,
  failure `{"status":"error","error":{…},"meta":{…}}`.
- A field or a query parameter that is not described here is refused with 422: a typing error is never ignored. `null`
  for an optional field of a body means that it is left out.
- No text may hold a NUL character or half of a surrogate pair; bodies are UTF-8, at most 1 MiB and 32 levels deep.
- Whole numbers are written without a fraction: 5, not 5.0.
- The same resources answer below `/v1/modules/scaimind`.
"""
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


def described(app: Flask) -> dict[str, Any]:
    """OpenAPI 3.1, with each path once: the other base path has the same resources."""
    operations = list(_operations(app))
    bodies = frozenset(type(declared.body) for _, _, declared in operations if declared.body is not None)
    spec = APISpec(
        title="Trainyard",
        version=VERSION,
        openapi_version="3.1.0",
        plugins=[StrictSchemas(bodies)],
        info={"description": _ABOUT.strip(), "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        tags=[{"name": name, "description": meaning} for name, meaning in _TAGS.items()],
        servers=[{"url": "/", "description": "This server"}],
    )
    spec.components.security_scheme(
        "key",
        {"type": "http", "scheme": "bearer", "description": "An API key: `ty_…`, made by `trainyard keys create`"},
    )
    spec.components.schema(ERROR, error_schema())
    for rule, method, declared in operations:
        told = described_operation(rule, method, declared)
        spec.path(path_of(rule), operations={method.lower(): {"tags": [_tag(rule, declared)], **told}})
    found: dict[str, Any] = spec.to_dict()
    return found


def _operations(app: Flask) -> Iterator[tuple[Rule, str, Operation]]:
    for rule in app.url_map.iter_rules():
        if not rule.rule.startswith(BASES[1]):
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
