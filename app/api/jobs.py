"""Submitting, reading, listing, changing and deleting jobs."""

from dataclasses import replace
from typing import Any

from flask import Blueprint
from sqlalchemy.orm import Session

from app.api.forwarding import FORWARDED, forwarded_tokens
from app.domain.spec.model import JobDocument
from app.http.context import backend, base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.schemas.jobs import (
    ChangeJobSchema,
    DeleteQuerySchema,
    DryRunSchema,
    JobQuerySchema,
    JobSchema,
    SubmitJobSchema,
    SubmitQuerySchema,
    SubmittedSchema,
)
from app.schemas.spec.field_verdicts import refuse, warnings_of
from app.schemas.spec.job_fields import FIELDS
from app.security.permissions import Permission
from app.services.evaluations import of_job
from app.services.jobs import deletion, dry_run, fit, listing, lookup, submission, updates
from app.services.jobs.details import JobDetails, details
from app.services.jobs.submission import Origin, Submitted

blueprint = Blueprint("jobs", __name__)
_JOB, _DRY_RUN = JobSchema(), DryRunSchema()


@blueprint.post("/jobs")
@operation(
    "Submit a job",
    permission=Permission.MANAGE,
    query=SubmitQuerySchema,
    body=SubmitJobSchema,
    answer=SubmittedSchema,
    status=201,
    also={200: DryRunSchema},
    headers=FORWARDED,
    rechecks_key=True,
)
def submit_job(query: dict[str, Any], body: JobDocument) -> Reply:
    wanted: dict[str, Any] = {"project": query.get("project"), "forwarded": forwarded_tokens()}
    refuse(body, FIELDS)
    warnings = warnings_of(body, FIELDS)
    if query["dry_run"]:
        # Not stored under an Idempotency-Key: a dry run has no effect to repeat.
        plan = dry_run.plan(plane(), caller(), body, **wanted)
        return Reply(_DRY_RUN.dump({"valid": True, "plan": plan, "warnings": [*warnings, *plan.warnings]}))
    recorder = ReplyRecorder(_submitted)
    origin = Origin(foreign={}, warnings=warnings)
    submission.submit(
        plane(), caller(), body, **wanted, origin=origin, on_written=recorder, alone=recorder.only_renders
    )
    return recorder.reply


@blueprint.get("/jobs")
@operation("List jobs", permission=Permission.VIEW, query=JobQuerySchema, answer=JobSchema, items="jobs")
def list_jobs(query: dict[str, Any]) -> dict[str, Any]:
    asked = {**query, "created_by": caller().key_id} if query.get("created_by") == "me" else query
    with plane().db.read() as session:
        found = listing.page(session, caller(), asked, page_request(query), shared=backend().shared)
        return page_data("jobs", _JOB, found, query)


@blueprint.get("/jobs/<job_id>")
@operation("Get a job", permission=Permission.VIEW, answer=JobSchema)
def get_job(job_id: str) -> Reply:
    with plane().db.read() as session:
        found = details(session, lookup.find(session, caller(), job_id), backend().shared)
        evaluations = of_job.ids_of(session, found.job)
        asked = fit.asked_of_stored(session, plane(), found)
    return Reply(_JOB.dump(replace(found, evaluations=evaluations, memory_estimate=fit.of(plane().db, asked))))


@blueprint.patch("/jobs/<job_id>")
@operation(
    "Update a job; of one that has ended its labels",
    permission=Permission.MANAGE,
    body=ChangeJobSchema,
    answer=JobSchema,
)
def change_job(job_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown)
    updates.change(plane(), caller(), job_id, body, on_written=recorder)
    return recorder.reply


@blueprint.delete("/jobs/<job_id>")
@operation("Delete a finished job", permission=Permission.MANAGE, query=DeleteQuerySchema, status=204)
def delete_job(job_id: str, query: dict[str, Any]) -> Reply:
    deletion.remove(plane(), caller(), job_id, artifacts=query["artifacts"])
    return Reply(None, 204)


def _shown(_session: Session, job: JobDetails) -> Reply:
    return Reply(_JOB.dump(job))


def _submitted(_session: Session, submitted: Submitted) -> Reply:
    job = submitted.job
    data = {
        "job_id": job.id,
        "status": job.status,
        "message": f"accepted into the queue {job.queue}",
        "estimated_wait_seconds": submitted.wait_seconds,
        "warnings": list(submitted.warnings),
    }
    return Reply(data, 201, location=f"{base_path()}/jobs/{job.id}")
