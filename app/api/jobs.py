"""Submitting, reading, listing and cancelling jobs."""

from typing import Any

from flask import Blueprint
from sqlalchemy.orm import Session

from app.api.context import base_path, caller, plane
from app.api.envelope import Reply
from app.api.errors import NotBuiltYet
from app.api.forwarding import FORWARDED, forwarded_tokens
from app.api.idempotency import Answering
from app.api.operation import operation
from app.api.pagination import page_data, page_request
from app.models import Job
from app.schemas.jobs import (
    CancelSchema,
    JobQuerySchema,
    JobSchema,
    SubmitJobSchema,
    SubmitQuerySchema,
    SubmittedSchema,
)
from app.security.permissions import Permission
from app.services import job_lists, jobs
from app.services.job_details import details

blueprint = Blueprint("jobs", __name__)
_JOB = JobSchema()


@blueprint.post("/jobs")
@operation(
    "Submit a job", permission=Permission.MANAGE, query=SubmitQuerySchema, body=SubmitJobSchema,
    answer=SubmittedSchema, status=201, headers=FORWARDED,
)  # fmt: skip
def submit_job(query: dict[str, Any], body: dict[str, Any]) -> Reply:
    if query["dry_run"]:
        raise NotBuiltYet("dry_run is not built yet; submit the job and cancel it if it should not run")
    answering = Answering(_submitted)
    jobs.submit(
        plane(), caller(), body, project=query.get("project"), forwarded=forwarded_tokens(), remember=answering
    )  # fmt: skip
    return answering.reply


@blueprint.get("/jobs")
@operation("List jobs", permission=Permission.VIEW, query=JobQuerySchema, answer=JobSchema, items="jobs")
def list_jobs(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("jobs", _JOB, job_lists.page(session, caller(), query, page_request(query)), query)


@blueprint.get("/jobs/<job_id>")
@operation("Read a job", permission=Permission.VIEW, answer=JobSchema)
def get_job(job_id: str) -> Any:
    with plane().db.read() as session:
        return _JOB.dump(details(session, jobs.find(session, caller(), job_id)))


@blueprint.post("/jobs/<job_id>/cancel")
@operation(
    "Cancel a job", permission=Permission.MANAGE, body=CancelSchema, body_optional=True, answer=JobSchema
)  # fmt: skip
def cancel_job(job_id: str, body: dict[str, Any]) -> Reply:
    answering = Answering(lambda session, job: Reply(_JOB.dump(details(session, job))))
    jobs.cancel(plane(), caller(), job_id, reason=body["reason"], remember=answering)
    return answering.reply


def _submitted(_session: Session, job: Job) -> Reply:
    data = {
        "job_id": job.id,
        "status": job.status,
        "message": f"accepted; waits in the queue {job.queue}",
        "estimated_wait_seconds": None,  # nothing estimates it yet
    }
    return Reply(data, 201, location=f"{base_path()}/jobs/{job.id}")
