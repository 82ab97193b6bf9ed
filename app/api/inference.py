"""Submitting, reading and listing inference jobs: batches and features."""

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
from app.schemas.inference import InferenceQuerySchema, InferenceSchema, SubmitInferenceSchema
from app.schemas.jobs import SubmittedSchema
from app.security.permissions import Permission
from app.services.inference import listing, submission
from app.services.inference.submission import NewInference
from app.services.jobs.submission import Submitted

blueprint = Blueprint("inference", __name__)
_INFERENCE, _DRY_RUN = InferenceSchema(), InspectedDryRunSchema()


@blueprint.post("/inference")
@operation(
    "Submit a batch or features job",
    permission=Permission.MANAGE,
    query=InspectedSubmitQuerySchema,
    body=SubmitInferenceSchema,
    answer=SubmittedSchema,
    status=201,
    also={200: InspectedDryRunSchema},
    headers=FORWARDED,
)
def submit_inference(query: dict[str, Any], body: NewInference) -> Reply:
    wanted: dict[str, Any] = {"project": query.get("project"), "forwarded": forwarded_tokens()}
    if query["dry_run"]:
        # Not stored under an Idempotency-Key: a dry run has no effect to repeat.
        plan, warnings = submission.plan(plane(), caller(), body, **wanted)
        data = {"data": data_of_plan(plan)} if query["inspect"] else {}
        return Reply(_DRY_RUN.dump({"valid": True, "plan": plan, "warnings": warnings, **data}))
    recorder = ReplyRecorder(_submitted)
    submission.submit(plane(), caller(), body, **wanted, on_written=recorder)
    return recorder.reply


@blueprint.get("/inference")
@operation(
    "List batch and features jobs",
    permission=Permission.VIEW,
    query=InferenceQuerySchema,
    answer=InferenceSchema,
    items="inference",
)
def list_inference(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("inference", _INFERENCE, listing.page(session, caller(), query, page_request(query)), query)


@blueprint.get("/inference/<job_id>")
@operation("Get a batch or features job", permission=Permission.VIEW, answer=InferenceSchema)
def get_inference(job_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_INFERENCE.dump(listing.one(session, caller(), job_id)))


def _submitted(_session: Session, submitted: Submitted) -> Reply:
    job = submitted.job
    data = {
        "job_id": job.id,
        "status": job.status,
        "message": f"accepted into the queue {job.queue}",
        "estimated_wait_seconds": submitted.wait_seconds,
        "warnings": list(submitted.warnings),
    }
    return Reply(data, 201, location=f"{base_path()}/inference/{job.id}")
