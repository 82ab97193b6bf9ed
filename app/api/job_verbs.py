"""Control requests for a job: cancel, pause, resume, retry, checkpoint."""

from collections.abc import Callable
from functools import partial
from typing import Any

from flask import Blueprint
from sqlalchemy.orm import Session

from app.api.forwarding import FORWARDED, forwarded_tokens
from app.http.context import base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.documents import NothingSchema
from app.schemas.jobs import (
    CancelSchema,
    JobSchema,
    PauseSchema,
    PreemptSchema,
    ResumeSchema,
    RetrySchema,
    SubmitJobSchema,
)
from app.security.permissions import Permission
from app.services.jobs import retries
from app.services.jobs.control import commands
from app.services.jobs.details import JobDetails
from app.services.jobs.retries import Retry, RoleChange

blueprint = Blueprint("job_verbs", __name__)
_JOB, _DOCUMENT = JobSchema(), SubmitJobSchema()


@blueprint.post("/jobs/<job_id>/cancel")
@operation("Cancel a job", permission=Permission.MANAGE, body=CancelSchema, body_optional=True, answer=JobSchema)
def cancel_job(job_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown(200))
    commands.cancel(plane(), caller(), job_id, reason=body["reason"], on_written=recorder)
    return recorder.reply


@blueprint.post("/jobs/<job_id>/pause")
@operation(
    "Pause a job until it is resumed",
    permission=Permission.MANAGE,
    body=PauseSchema,
    body_optional=True,
    answer=JobSchema,
    status=202,
)
def pause_job(job_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown(202))
    commands.pause(plane(), caller(), job_id, saves=body["save_checkpoint"], force=body["force"], on_written=recorder)
    return recorder.reply


@blueprint.post("/jobs/<job_id>/resume")
@operation(
    "Resume a paused job, or take back a pause that it has not carried out yet",
    permission=Permission.MANAGE,
    body=ResumeSchema,
    body_optional=True,
    answer=JobSchema,
    status=202,
)
def resume_job(job_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown(202))
    commands.resume(
        plane(), caller(), job_id, checkpoint_id=body["checkpoint_id"], from_best=body["from_best"], on_written=recorder
    )
    return recorder.reply


@blueprint.post("/jobs/<job_id>/retry")
@operation(
    "Retry a finished job as a new job",
    permission=Permission.MANAGE,
    body=RetrySchema,
    body_optional=True,
    answer=JobSchema,
    status=201,
    headers=FORWARDED,
)
def retry_job(job_id: str, body: dict[str, Any]) -> Reply:
    changes = body if body["modify_resources"] else {}
    wanted = Retry(
        checkpoint_id=body["checkpoint_id"],
        from_start=body["from_start"],
        resources=changes.get("new_resource_config") or {},
        roles=[RoleChange(**each) for each in changes.get("new_tasks") or ()],
        forwarded=forwarded_tokens(),
    )
    recorder = ReplyRecorder(_created)
    retries.retry(plane(), caller(), job_id, wanted, complete=partial(validated, _DOCUMENT), on_written=recorder)
    return recorder.reply


@blueprint.post("/jobs/<job_id>/preempt")
@operation(
    "Preempt a running job: it saves a checkpoint and releases its devices",
    permission=Permission.CLUSTER_ADMIN,
    body=PreemptSchema,
    body_optional=True,
    answer=JobSchema,
    status=202,
)
def preempt_job(job_id: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(_shown(202))
    commands.preempt(plane(), caller(), job_id, reason=body["reason"], on_written=recorder)
    return recorder.reply


@blueprint.post("/jobs/<job_id>/checkpoint")
@operation(
    "Save a checkpoint of a running job; it continues",
    permission=Permission.MANAGE,
    body=NothingSchema,
    body_optional=True,
    answer=JobSchema,
    status=202,
)
def checkpoint_job(job_id: str, body: dict[str, Any]) -> Reply:
    del body  # it has no fields
    recorder = ReplyRecorder(_shown(202))
    commands.save_now(plane(), caller(), job_id, on_written=recorder)
    return recorder.reply


def _shown(status: int) -> Callable[[Session, JobDetails], Reply]:
    return lambda _session, job: Reply(_JOB.dump(job), status)


def _created(_session: Session, details: JobDetails) -> Reply:
    return Reply(_JOB.dump(details), 201, location=f"{base_path()}/jobs/{details.job.id}")
