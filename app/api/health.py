"""Whether the server lives, and whether the platform can take and run jobs."""

from flask import Blueprint, Response

from app.http.context import backend
from app.http.envelope import Problem
from app.http.errors import failure
from app.http.operation import operation
from app.services.operations.readiness import failing_parts

blueprint = Blueprint("health", __name__)


@blueprint.get("/health")
@operation("Whether this server lives", permission=None)
def live() -> dict[str, str]:
    return {"status": "live"}


@blueprint.get("/health/ready")
@operation("Whether database, broker and a coordinator are there", permission=None)
def ready() -> dict[str, str] | Response:
    failing = failing_parts(backend().plane.db, backend().settings.broker.url)
    if not failing:
        return {"status": "ready"}
    message = "not ready: " + "; ".join(f"{part} {problem}" for part, problem in failing.items())
    return failure(Problem(503, "UNAVAILABLE", message, details=list(failing.items()), retry_after=1))
