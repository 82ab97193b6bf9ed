"""Routes of training jobs: create, read, search, change, terminate and delete."""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Blueprint

from app.compat.modelarts import lookup
from app.compat.modelarts.dialect import NAME_TAKEN
from app.compat.modelarts.endpoints import warnings_of_endpoints
from app.compat.modelarts.fields import SEARCH_FIELDS, WORKSPACE_FIELDS, check_annotations, warnings_of_annotations
from app.compat.modelarts.queries import NameQuerySchema
from app.compat.modelarts.requests import ActionSchema, BatchDeleteSchema, ChangeSchema, CreateSchema, SearchSchema
from app.compat.modelarts.searching import creation
from app.compat.modelarts.to_native import DIALECT, NAMING, Native, alias_of, to_native
from app.compat.reading import may_read, uses_images
from app.domain.errors import Conflict, IllegalTransition, InvalidRequest, NotFound
from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import warnings_of
from app.security.permissions import Permission
from app.services.jobs import dialect_notes, submission
from app.services.jobs import lookup as of_jobs
from app.services.jobs.control import commands
from app.services.jobs.submission import Origin, Submitted
from app.services.nodes import registry
from app.services.rows import Session
from app.services.sweeps import commands as sweep_commands
from app.services.sweeps import foreign
from app.services.sweeps import lookup as of_sweeps

blueprint = Blueprint("jobs", __name__)
_DOCUMENT = SubmitJobSchema()


class NameTaken(Conflict):
    """A job of that name exists."""

    code = NAME_TAKEN


@blueprint.post("/<project_id>/training-jobs")
@operation("Create a training job", permission=Permission.MANAGE, body=CreateSchema, status=201, rechecks_key=True)
def create_job(project_id: str, body: dict[str, Any]) -> Reply:
    is_search = bool((body["algorithm"].get("policies") or {}).get("auto_search"))
    try:
        return creation.create(project_id, body, _translated) if is_search else _submit(project_id, body)
    except Conflict as error:
        if type(error) is not Conflict:
            raise
        raise NameTaken(error.message, field="metadata.name") from error


def _submit(project_id: str, body: Mapping[str, Any]) -> Reply:
    native = _translated(body)
    answering = ReplyRecorder(_submitted)
    with NAMING.errors():
        document = validated(_DOCUMENT, native.document)
        origin = Origin(
            foreign=native.foreign,
            alias=alias_of(project_id, body["metadata"]["name"]),
            warnings=[*native.warnings, *warnings_of_endpoints(body, native.document)],
            retold=NAMING.line,
        )
        submission.submit(plane(), caller(), document, project=project_id, origin=origin, on_written=answering)
    return answering.reply


@blueprint.get("/<project_id>/training-jobs/<training_job_id>")
@operation("Read a training job", permission=Permission.VIEW)
def get_job(project_id: str, training_job_id: str) -> Reply:  # noqa: ARG001 – the caller is within it
    with plane().db.read() as session:
        return Reply(lookup.shown(session, lookup.find(session, training_job_id)))


@blueprint.put("/<project_id>/training-jobs/<training_job_id>")
@operation("Change the description of a training job", permission=Permission.MANAGE, body=ChangeSchema)
def change_job(project_id: str, training_job_id: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        details = lookup.find(session, training_job_id)
    found = details.job
    stored = found.foreign.get(DIALECT, {}).get("metadata") or {}
    wanted = {**(body.get("metadata") or {}), **{name: body[name] for name in ("description",) if name in body}}
    annotations = wanted.get("annotations") or {}
    check_annotations(annotations)
    note = foreign.note if lookup.is_sweep(details) else dialect_notes.note
    note(plane(), caller(), found.id, dialect=DIALECT, metadata={**stored, **wanted})
    return Reply({}, warnings=warnings_of_annotations(annotations))


@blueprint.delete("/<project_id>/training-jobs/<training_job_id>")
@operation("Delete a training job; if it runs, it is cancelled", permission=Permission.MANAGE, status=202)
def delete_job(project_id: str, training_job_id: str) -> Reply:  # noqa: ARG001
    lookup.delete(training_job_id)
    return Reply({}, 202)


@blueprint.post("/<project_id>/training-jobs/<training_job_id>/actions")
@operation("Terminate a training job", permission=Permission.MANAGE, body=ActionSchema, status=202)
def act_on_job(project_id: str, training_job_id: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        details = lookup.find(session, training_job_id)
    found = details.job
    if found.state in TERMINAL:
        raise IllegalTransition(f"the job has ended as {found.status}; only unfinished jobs can be terminated")
    cancel = sweep_commands.cancel if lookup.is_sweep(details) else commands.cancel
    cancel(plane(), caller(), found.id, reason="terminated")
    with plane().db.read() as session:
        return Reply(lookup.shown(session, lookup.find(session, training_job_id)), 202)


@blueprint.post("/<project_id>/training-jobs/batch-delete")
@operation("Delete several training jobs", permission=Permission.MANAGE, body=BatchDeleteSchema)
def delete_jobs(project_id: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
    wanted = [each["metadata"].get("id") for each in body["jobs"]]
    if not all(isinstance(each, str) for each in wanted):
        raise InvalidRequest("must be the id of a training job", field="jobs.metadata.id")
    with plane().db.read() as session:
        for each in wanted:
            lookup.find(session, each)  # all of them or none
    for each in dict.fromkeys(wanted):
        lookup.delete(each)
    return Reply({})


@blueprint.post("/<project_id>/training-job-searches")
@operation("Search for training jobs", permission=Permission.VIEW, body=SearchSchema)
def search_jobs(project_id: str, body: dict[str, Any]) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        total, count, page = lookup.searched(session, body)
        items = lookup.shown_together(session, page)
    echoed = {name: body.get(name, "") for name in ("sort_by", "order", "group_by", "workspace_id")}
    counts = {"total": total, "count": count, "limit": body["limit"], "offset": body["offset"]}
    answer = {**counts, **echoed, "ai_project": "default-ai-project", "items": items}
    return Reply(answer, warnings=warnings_of(body, SEARCH_FIELDS))


@blueprint.get("/<project_id>/training-job-names")
@operation("Check whether a name is taken", permission=Permission.VIEW, query=NameQuerySchema)
def check_name(project_id: str, query: dict[str, Any]) -> Reply:
    alias = alias_of(project_id, query["job_name"])
    with plane().db.read() as session:
        is_taken = any(_finds(session, find, alias) for find in (of_jobs.find_by_alias, of_sweeps.find_by_alias))
    return Reply({"is_duplicate": is_taken}, warnings=warnings_of(query, WORKSPACE_FIELDS))


def _finds(session: Session, find: Callable[..., object], alias: str) -> bool:
    try:
        find(session, caller(), alias, missing="free")
    except NotFound:
        return False
    return True


def _translated(body: Mapping[str, Any]) -> Native:
    """Raises InvalidRequest."""
    with plane().db.read() as session:
        try:
            return to_native(body, plane().inventory.capacities(session), may_read, uses_images=uses_images())
        except InvalidRequest:
            # Again with the current nodes: the cached inventory is no reason to refuse a job.
            return to_native(body, registry.capacities(session, only_ready=False), may_read, uses_images=uses_images())


def _submitted(session: Session, submitted: Submitted) -> Reply:
    return Reply(lookup.shown_new(session, submitted.job), 201, warnings=submitted.warnings)
