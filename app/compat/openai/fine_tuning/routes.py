"""Routes of fine-tuning jobs."""

import secrets
from collections.abc import Collection
from typing import Any

from flask import Blueprint

from app.compat.openai.bodies import NO_BODY
from app.compat.openai.fine_tuning import lookup
from app.compat.openai.fine_tuning.answers import CheckpointsSchema, EventsSchema, FineTuningJobSchema, JobsSchema
from app.compat.openai.fine_tuning.data_files import TRAINING_FILE, VALIDATION_FILE
from app.compat.openai.fine_tuning.from_native import STATUSES, job_of
from app.compat.openai.fine_tuning.naming import INTEGRATIONS, TOP_LEVEL, naming_of, renamed
from app.compat.openai.fine_tuning.schemas import (
    CheckpointsQuerySchema,
    CreateJobSchema,
    CursorQuerySchema,
    FineTuningJobsQuerySchema,
)
from app.compat.openai.fine_tuning.to_native import ResolvedRequest, to_native
from app.domain.errors import IllegalTransition
from app.domain.lifecycle.states import TERMINAL, JobState
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.security.permissions import Permission
from app.services.jobs import submission
from app.services.jobs.control import commands
from app.services.jobs.details import JobDetails, details, of_new
from app.services.jobs.submission import Origin, Submitted
from app.services.model_registry import fine_tunes
from app.services.model_registry.resolving import resolve_for_training
from app.services.rows import Session

blueprint = Blueprint("fine_tuning", __name__)
_DOCUMENT = SubmitJobSchema()
_SEEDS = 2**31
_COMMAND: dict[str, Any] = {**NO_BODY, "runs_again": True}  # it changes the state of a job


@blueprint.post("/fine_tuning/jobs")
@operation(
    "Create a fine-tuning job",
    permission=Permission.MANAGE,
    body=CreateJobSchema,
    answer=FineTuningJobSchema,
    rechecks_key=True,
)
def create_job(body: dict[str, Any]) -> Reply:
    asked = _asked(body)
    native = to_native(asked)

    def render(session: Session, submitted: Submitted) -> Reply:
        fine_tunes.hold(session, caller(), asked.base.name)
        row = fine_tunes.planned(session, submitted.job, asked.base.name, body.get("suffix"))
        return Reply(job_of(of_new(submitted.job), row.name), warnings=submitted.warnings)

    answering = ReplyRecorder(render)
    naming = naming_of(asked.method, top_level=TOP_LEVEL in body, integrations=len(body.get(INTEGRATIONS) or ()))
    with renamed(naming):
        document = validated(_DOCUMENT, native.document)
        origin = Origin(foreign=native.foreign, retold=naming.line)
        submission.submit(plane(), caller(), document, origin=origin, on_written=answering)
    return answering.reply


@blueprint.get("/fine_tuning/jobs")
@operation(
    "List fine-tuning jobs, the newest first",
    permission=Permission.VIEW,
    query=FineTuningJobsQuerySchema,
    answer=JobsSchema,
)
def list_jobs(query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        return Reply(lookup.page(session, query))


@blueprint.get("/fine_tuning/jobs/<job_id>")
@operation("Read a fine-tuning job", permission=Permission.VIEW, answer=FineTuningJobSchema)
def get_job(job_id: str) -> Reply:
    with plane().db.read() as session:
        return _shown(session, details(session, lookup.find(session, job_id)))


@blueprint.post("/fine_tuning/jobs/<job_id>/cancel")
@operation("Cancel a fine-tuning job", permission=Permission.MANAGE, answer=FineTuningJobSchema, **_COMMAND)
def cancel_job(job_id: str, body: dict[str, Any]) -> Reply:
    del body  # it has no fields
    answering = ReplyRecorder(_shown)
    native_id = _native_id(job_id, "cancelled", unless=TERMINAL)  # natively a cancelled job may be cancelled again
    commands.cancel(plane(), caller(), native_id, on_written=answering)
    return answering.reply


@blueprint.post("/fine_tuning/jobs/<job_id>/pause")
@operation("Pause a fine-tuning job", permission=Permission.MANAGE, answer=FineTuningJobSchema, **_COMMAND)
def pause_job(job_id: str, body: dict[str, Any]) -> Reply:
    del body  # it has no fields
    answering = ReplyRecorder(_shown)
    # Save a checkpoint if possible, else stop without one: OpenAI's clients can't choose.
    native_id = _native_id(job_id, "paused", unless=TERMINAL)
    commands.pause(plane(), caller(), native_id, force=True, on_written=answering)
    return answering.reply


@blueprint.post("/fine_tuning/jobs/<job_id>/resume")
@operation("Resume a paused fine-tuning job", permission=Permission.MANAGE, answer=FineTuningJobSchema, **_COMMAND)
def resume_job(job_id: str, body: dict[str, Any]) -> Reply:
    del body  # it has no fields
    answering = ReplyRecorder(_shown)
    native_id = _native_id(job_id, "resumed", unless=STATUSES.keys() - {JobState.PAUSED})
    commands.resume(plane(), caller(), native_id, on_written=answering)
    return answering.reply


@blueprint.get("/fine_tuning/jobs/<job_id>/events")
@operation(
    "List the events of a fine-tuning job, the newest first",
    permission=Permission.VIEW,
    query=CursorQuerySchema,
    answer=EventsSchema,
)
def list_events(job_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        return Reply(lookup.events(session, job_id, query))


@blueprint.get("/fine_tuning/jobs/<job_id>/checkpoints")
@operation(
    "List the checkpoints of a fine-tuning job, the newest first",
    permission=Permission.VIEW,
    query=CheckpointsQuerySchema,
    answer=CheckpointsSchema,
)
def list_checkpoints(job_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        return Reply(lookup.saved(session, job_id, query))


def _asked(body: dict[str, Any]) -> ResolvedRequest:
    """The request with its model and files. Raises NotFound naming the field, Conflict and BadSpec."""
    validation = body.get(VALIDATION_FILE)
    with plane().db.read() as session:
        model = lookup.model_named(session, body["model"])
        return ResolvedRequest(
            body=body,
            base=resolve_for_training(session, caller(), caller().home_project, model),
            training=lookup.file_of(session, body[TRAINING_FILE], TRAINING_FILE),
            validation=lookup.file_of(session, validation, VALIDATION_FILE) if validation else None,
            drawn_seed=secrets.randbelow(_SEEDS),
        )


def _native_id(job_id: str, done: str, *, unless: Collection[JobState]) -> str:
    """Raises IllegalTransition in the client's words where the job can't be that."""
    with plane().db.read() as session:
        job = lookup.find(session, job_id)
        if job.state in unless:
            raise IllegalTransition(f"{job_id} is {STATUSES[job.state]} and can't be {done}")
        return job.id


def _shown(session: Session, job: JobDetails) -> Reply:
    return Reply(lookup.shown(session, [job])[0])
