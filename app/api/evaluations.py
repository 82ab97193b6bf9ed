"""Evaluations: creating, reading, cancelling, deleting and comparing them."""

from typing import Any

from flask import Blueprint
from sqlalchemy.orm import Session

from app.api.forwarding import FORWARDED, forwarded_tokens
from app.api.inspecting import data_of_plan
from app.http.context import base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.schemas.data_validation import InspectedDryRunSchema, InspectedSubmitQuerySchema
from app.schemas.evaluations import (
    CompareEvaluationsSchema,
    CreatedEvaluationSchema,
    CreateEvaluationSchema,
    EvaluationAnswerSchema,
    EvaluationComparisonSchema,
    EvaluationQuerySchema,
)
from app.schemas.jobs import CancelSchema
from app.security.permissions import Permission
from app.services.evaluations import commands, comparing, listing, submission
from app.services.evaluations.listing import EvaluationDetails
from app.services.evaluations.submission import EvaluationRequest
from app.services.jobs.submission import Submitted

blueprint = Blueprint("evaluations", __name__)
_EVALUATION, _DRY_RUN, _COMPARISON = EvaluationAnswerSchema(), InspectedDryRunSchema(), EvaluationComparisonSchema()


@blueprint.post("/evaluations")
@operation(
    "Measure a model on benchmarks",
    permission=Permission.EVALUATE,
    query=InspectedSubmitQuerySchema,
    body=CreateEvaluationSchema,
    answer=CreatedEvaluationSchema,
    status=201,
    also={200: InspectedDryRunSchema},
    headers=FORWARDED,
)
def create_evaluation(query: dict[str, Any], body: EvaluationRequest) -> Reply:
    wanted: dict[str, Any] = {"project": query.get("project"), "forwarded": forwarded_tokens()}
    if query["dry_run"]:
        # Not stored under an Idempotency-Key: a dry run has no effect to repeat.
        plan = submission.plan(plane(), caller(), body, **wanted)
        data = {"data": data_of_plan(plan)} if query["inspect"] else {}
        return Reply(_DRY_RUN.dump({"valid": True, "plan": plan, "warnings": list(plan.warnings), **data}))
    recorder = ReplyRecorder(_created)
    submission.submit(plane(), caller(), body, **wanted, on_written=recorder)
    return recorder.reply


@blueprint.get("/evaluations")
@operation(
    "List evaluations",
    permission=Permission.VIEW,
    query=EvaluationQuerySchema,
    answer=EvaluationAnswerSchema,
    items="evaluations",
)
def list_evaluations(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        found = listing.page(session, caller(), query, page_request(query))
        return page_data("evaluations", _EVALUATION, found, query)


@blueprint.get("/evaluations/<evaluation_id>")
@operation("Get an evaluation with its results", permission=Permission.VIEW, answer=EvaluationAnswerSchema)
def get_evaluation(evaluation_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_EVALUATION.dump(listing.one(session, caller(), evaluation_id)))


@blueprint.delete("/evaluations/<evaluation_id>")
@operation("Delete a finished evaluation with its files", permission=Permission.EVALUATE, status=204)
def delete_evaluation(evaluation_id: str) -> Reply:
    commands.delete(plane(), caller(), evaluation_id)
    return Reply(None, 204)


@blueprint.post("/evaluations/<evaluation_id>/cancel")
@operation(
    "Cancel an evaluation",
    permission=Permission.EVALUATE,
    body=CancelSchema,
    body_optional=True,
    answer=EvaluationAnswerSchema,
)
def cancel_evaluation(evaluation_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown)
    commands.cancel(plane(), caller(), evaluation_id, reason=body["reason"], on_written=recorder)
    return recorder.reply


@blueprint.post("/evaluations/compare")
@operation(
    "Compare evaluations on the samples that they share",
    permission=Permission.VIEW,
    body=CompareEvaluationsSchema,
    answer=EvaluationComparisonSchema,
)
def compare_evaluations(body: dict[str, Any]) -> Reply:
    # Not stored under an Idempotency-Key: a comparison has no effect to repeat.
    with plane().db.read() as session:
        evaluated = comparing.load(session, caller(), body["ids"])
    return Reply(_COMPARISON.dump(comparing.compare(plane().storage, evaluated, body.get("baseline"))))


def _created(_session: Session, submitted: Submitted) -> Reply:
    job = submitted.job
    data = {
        "evaluation_id": job.id,
        "status": job.status,
        "message": f"accepted into the queue {job.queue}",
        "estimated_wait_seconds": submitted.wait_seconds,
        "warnings": list(submitted.warnings),
    }
    return Reply(data, 201, location=f"{base_path()}/evaluations/{job.id}")


def _shown(_session: Session, evaluation: EvaluationDetails) -> Reply:
    return Reply(_EVALUATION.dump(evaluation))
