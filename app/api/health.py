"""Liveness of the server, and readiness of the platform to accept and run jobs."""

from flask import Blueprint, Response

from app.http.context import backend
from app.http.envelope import Problem
from app.http.errors import failure
from app.http.operation import operation
from app.services.operations.readiness import failing_parts

blueprint = Blueprint("health", __name__)


@blueprint.get("/health")
@operation("Check that this server is live", permission=None)
def live() -> dict[str, str]:
    return {"status": "live"}


@blueprint.get("/health/ready")
@operation("Check that the database, the broker and a coordinator are available", permission=None)
def ready() -> dict[str, str] | Response:
    failing = failing_parts(backend().plane.db, backend().settings.broker.url)
    if not failing:
        return {"status": "ready"}
    message = "not ready: " + "; ".join(f"{part} {problem}" for part, problem in failing.items())
    return failure(Problem(503, "UNAVAILABLE", message, details=list(failing.items()), retry_after=1))
