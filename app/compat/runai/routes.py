"""Run:ai's trainings over HTTP, the list of all workloads, projects, and tokens."""

import secrets
import string
from typing import Any

from flask import Blueprint, Response, current_app
from marshmallow import Schema
from sqlalchemy.orm import Session

from app.compat.naming import named_as
from app.compat.runai import tokens
from app.compat.runai.from_native import event_of, is_deleted, job_id_of, training_of, workload_of
from app.compat.runai.queries import CountQuerySchema, WorkloadsQuerySchema, chosen, ordered
from app.compat.runai.requests import TokenSchema, TrainingSchema
from app.compat.runai.to_native import DIALECT, NAMES, PRIORITIES, REST, to_native
from app.domain.errors import BadSpec, NotFound
from app.domain.job_state import TERMINAL
from app.domain.locations import check_path
from app.http.auth import wrong_keys_counted
from app.http.context import caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.idempotency import Answering
from app.http.operation import operation
from app.http.request_body import validated
from app.models import Job
from app.schemas.jobs import SubmitJobSchema
from app.schemas.queries import QueryWhole
from app.security.permissions import Permission
from app.services import job_history, job_lists, jobs, keys, projects
from app.services.job_details import JobDetails, changed, details
from app.services.jobs import Origin, Submitted
from app.services.pages import PageRequest

blueprint = Blueprint("runai", __name__)
_DOCUMENT = SubmitJobSchema()
_MOST_JOBS = 10_000  # that a list looks at
_ACCEPTED = {"code": 202, "message": "Request has been accepted."}


class EventsQuerySchema(Schema):
    offset = QueryWhole(0, _MOST_JOBS, load_default=0)
    limit = QueryWhole(1, 500, load_default=50)


@blueprint.post("/token")
@operation("Exchange a pair for a token", permission=None, body=TokenSchema, refuses=(401, 429))
def make_token(body: dict[str, Any]) -> Reply:
    names = ("AppId", "AppSecret") if body["grantType"] == "app_token" else ("clientId", "clientSecret")
    pair = [body.get(name) or "" for name in names]
    missing = next((name for name, value in zip(names, pair, strict=True) if not value), None)
    if missing is not None:
        raise BadSpec(f"is needed for grantType {body['grantType']}", field=missing)
    with wrong_keys_counted():
        found = keys.of_pair(plane().db, plane().box, *pair)
    expires = {"expiresIn": tokens.LIFETIME_SECONDS, "tokenType": "Bearer"}
    return Reply({"accessToken": tokens.token_for(found.key_id), **expires})


@blueprint.post("/workloads/trainings")
@operation("Submit a training", permission=Permission.MANAGE, body=TrainingSchema, status=202)
def create_training(body: dict[str, Any]) -> Reply:
    name = f"{body['name']}-{_ending()}" if body["useGivenNameAsPrefix"] else body["name"]
    answering = Answering(_submitted)
    native = to_native(body, name, may_read=_may_read)
    with named_as(NAMES, rest=REST):
        document = validated(_DOCUMENT, native.document)
        origin = Origin(foreign=native.foreign, unheeded=native.unheeded)
        jobs.submit(
            plane(), caller(), document, project=_project(body["projectId"]), origin=origin, remember=answering
        )  # fmt: skip
    return answering.reply


@blueprint.get("/workloads/trainings/<workload_id>")
@operation("Read a training", permission=Permission.VIEW)
def get_training(workload_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(training_of(_find(session, workload_id)))


@blueprint.delete("/workloads/trainings/<workload_id>")
@operation("Delete a training; what runs of it is cancelled", permission=Permission.MANAGE, status=204)
def delete_training(workload_id: str) -> Reply:
    jobs.withdraw(plane(), caller(), _native_id(workload_id), dialect=DIALECT)
    return Reply(None, 204)


@blueprint.post("/workloads/trainings/<workload_id>/suspend")
@operation("Suspend a training until it is resumed", permission=Permission.MANAGE, status=202)
def suspend_training(workload_id: str) -> Reply:
    # Save if it can, else stop: a client of Run:ai has no way to say which.
    jobs.pause(plane(), caller(), _native_id(workload_id), force=True)
    return Reply(_ACCEPTED, 202)


@blueprint.post("/workloads/trainings/<workload_id>/resume")
@operation("Let a suspended training go on", permission=Permission.MANAGE, status=202)
def resume_training(workload_id: str) -> Reply:
    with plane().db.read() as session:
        found = _find(session, workload_id)
    if found.job.state not in TERMINAL and found.job.state != "PAUSED" and found.requested is None:
        return Reply(_ACCEPTED, 202)  # it runs, or will: Run:ai takes that for granted
    jobs.resume(plane(), caller(), found.job.id)
    return Reply(_ACCEPTED, 202)


@blueprint.get("/workloads")
@operation("List the workloads", permission=Permission.VIEW, query=WorkloadsQuerySchema)
def list_workloads(query: dict[str, Any]) -> Reply:
    rows = ordered(chosen(_rows(), query), query)
    begin, end = query["offset"], query["offset"] + query["limit"]
    following = {"next": end} if end < len(rows) else {}
    return Reply({"workloads": rows[begin:end], **following})


@blueprint.get("/workloads/count")
@operation("Count the workloads", permission=Permission.VIEW, query=CountQuerySchema)
def count_workloads(query: dict[str, Any]) -> Reply:
    return Reply({"count": len(chosen(_rows(), query))})


@blueprint.get("/workloads/<workload_id>")
@operation("Read a workload", permission=Permission.VIEW)
def get_workload(workload_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(workload_of(_find(session, workload_id)))


@blueprint.get("/workloads/<workload_id>/events")
@operation("List the events of a workload, newest first", permission=Permission.VIEW, query=EventsQuerySchema)
def list_events(workload_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        job_id = _find(session, workload_id).job.id
        # Their numbers are dense: the newest has the last one.
        last = session.get_one(Job, job_id).event_seq - query["offset"]
        events = job_history.events_after(session, job_id, max(0, last - query["limit"]), limit=query["limit"])
        found = [event_of(event) for event in events if event.seq <= last]
    following = {"next": query["offset"] + query["limit"]} if last > query["limit"] else {}
    return Reply({"events": found[::-1], **following})


@blueprint.get("/workload-priorities")
@operation("List the classes of priority", permission=Permission.VIEW)
def list_priorities() -> Reply:
    found = [{"id": name, "name": name, "value": priority} for name, (priority, _) in PRIORITIES.items()]
    return Reply({"workloadPriorities": found})


@blueprint.get("/org-unit/projects")
@operation("List the projects", permission=Permission.VIEW)
def list_projects() -> Reply:
    with plane().db.read() as session:
        page = projects.page(session, caller(), PageRequest(size=_MOST_JOBS, order="name"))
        found = [{"id": each.name, "name": each.name, "description": each.description} for each in page.items]
    return Reply({"projects": found})


@blueprint.get("/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))


def _find(session: Session, workload: str) -> JobDetails:
    """Raises NotFound for what is not there, not the caller's, or deleted."""
    found = details(session, jobs.find(session, caller(), job_id_of(workload)))
    if is_deleted(found):
        raise NotFound("Resource id not found.")
    return found


def _native_id(workload: str) -> str:
    with plane().db.read() as session:
        return _find(session, workload).job.id


def _rows() -> list[dict[str, Any]]:
    """Of all jobs that the caller sees, the newest first, up to so many."""
    rows: list[dict[str, Any]] = []
    after: tuple[Any, ...] | None = None
    with plane().db.read() as session:
        while len(rows) < _MOST_JOBS:
            page = job_lists.page(session, caller(), {}, PageRequest(size=500, order="-created_at", after=after))
            rows += [workload_of(each) for each in page.items if not is_deleted(each)]
            after = page.next_after
            if after is None:
                break
    return rows


def _project(project: str) -> str:
    """Raises NotFound for one that is not the caller's."""
    with plane().db.read() as session:
        return projects.visible(session, caller(), project).name


def _may_read(directory: str) -> bool:
    try:
        check_path(directory, plane().reading, field="spec.workingDir")
    except BadSpec:
        return False
    return True


def _submitted(session: Session, submitted: Submitted) -> Reply:
    job = jobs.find(session, caller(), submitted.job.id)  # with all that the database filled in
    return Reply(training_of(changed(session, job)), 202)


def _ending() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(8))
