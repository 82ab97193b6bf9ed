"""Comparison of jobs."""

from typing import Any

from flask import Blueprint

from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.schemas.comparisons import CompareJobsSchema, ComparisonSchema
from app.security.permissions import Permission
from app.services.jobs import comparison
from app.services.jobs.comparison import ComparisonRequest

blueprint = Blueprint("comparisons", __name__)
_COMPARISON = ComparisonSchema()


@blueprint.post("/compare")
@operation("Compare jobs", permission=Permission.VIEW, body=CompareJobsSchema, answer=ComparisonSchema)
def compare_jobs(body: dict[str, Any]) -> Reply:
    # Not stored under an Idempotency-Key: a comparison has no effect to repeat.
    with plane().db.snapshot() as session:
        return Reply(_COMPARISON.dump(comparison.compare(session, caller(), ComparisonRequest(**body))))
