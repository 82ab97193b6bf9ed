"""Routes of CyxWiz's job execution API: jobs, progress, reports, and nodes with scores."""

from collections.abc import Sequence
from datetime import timedelta
from importlib import resources
from typing import Any

from flask import Blueprint, Response, current_app

from app.compat.cyxwiz import inference, service_jobs
from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.dialect import message_body, to_json
from app.compat.cyxwiz.from_native import STATES, id_of, moment, node_of, progress_of, report_of, status_of
from app.compat.cyxwiz.queries import JobListQuerySchema, NodeListQuerySchema
from app.compat.cyxwiz.services import makes_service
from app.compat.cyxwiz.shapes import shape_of
from app.compat.cyxwiz.to_native import NAMING, alias_of, to_native
from app.database.engine import Database
from app.domain.errors import NotFound
from app.domain.ids import JOB_ID
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.scheduling.resources import Request
from app.domain.scheduling.scoring import score_node
from app.host.clock import utc_now
from app.http.context import base_path, caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import next_page_token, page_request
from app.http.request_body import validated
from app.http.sse import EventFrame, Feed, stream, wants_events
from app.schemas.inference import SubmitInferenceSchema
from app.schemas.jobs import SubmitJobSchema
from app.security.permissions import Permission
from app.services.inference import submission as inference_jobs
from app.services.jobs import deletion, history, listing, lookup, reports, submission
from app.services.jobs.control import commands
from app.services.jobs.details import JobDetails, details
from app.services.jobs.submission import Origin, Submitted
from app.services.nodes import listing as node_lists
from app.services.nodes import registry
from app.services.rows import Job, Session
from app.services.serving import lookup as service_lookup
from app.services.serving.lookup import SERVICE_ID

blueprint = Blueprint("cyxwiz", __name__)
_DOCUMENT, _INFERENCE = SubmitJobSchema(), SubmitInferenceSchema()


@blueprint.post("/jobs")
@operation(
    "Submit a job",
    permission=Permission.MANAGE,
    answer=shape_of(pb.SubmitJobResponse),
    status=201,
    rechecks_key=True,
    **message_body(pb.JobConfig),
)
def submit_job(body: pb.JobConfig) -> Reply:
    if makes_service(body):
        return service_jobs.submit(body)
    infers = body.job_type == pb.INFERENCE
    native = inference.to_native(body) if infers else to_native(body)
    alias = alias_of(caller().home_project, body.job_id) if body.job_id else None
    answering = ReplyRecorder(_submitted)
    with NAMING.errors():
        origin = Origin(foreign=native.foreign, alias=alias, retold=NAMING.line)
        if infers:
            wanted = validated(_INFERENCE, native.document)
            inference_jobs.submit(plane(), caller(), wanted, origin=origin, on_written=answering)
        else:
            document = validated(_DOCUMENT, native.document)
            submission.submit(plane(), caller(), document, origin=origin, on_written=answering)
    return answering.reply


@blueprint.get("/jobs")
@operation("List jobs", permission=Permission.VIEW, query=JobListQuerySchema, answer=shape_of(pb.ListJobsResponse))
def list_jobs(query: dict[str, Any]) -> Reply:
    if query["services"]:
        with plane().db.read() as session:
            return service_jobs.page(session, query)
    filters = {"status": [state for state, (shown, _) in STATES.items() if shown in query["status"]]}
    with plane().db.read() as session:
        page = listing.page(session, caller(), filters if query["status"] else {}, page_request(query))
        found = _statuses(session, page.items)
    token = next_page_token(page, query)
    return Reply(pb.ListJobsResponse(jobs=found, next_page_token=token, total_count=page.total_count))


@blueprint.get("/jobs/<job_id>")
@operation("Read a job, with its configuration", permission=Permission.VIEW, answer=shape_of(pb.JobStatus))
def get_job(job_id: str) -> Reply:
    with plane().db.read() as session:
        found = _found(session, job_id)
        if isinstance(found, str):
            return service_jobs.shown(session, service_lookup.service(session, caller(), found))
        return _shown(session, details(session, found))


@blueprint.delete("/jobs/<job_id>")
@operation("Delete a finished job", permission=Permission.MANAGE, status=204)
def delete_job(job_id: str) -> Reply:
    native = _native_id(job_id)
    if SERVICE_ID.fullmatch(native):
        service_jobs.refuse_deletion(job_id)
    deletion.remove(plane(), caller(), native, artifacts=False)
    return Reply(None, 204)


@blueprint.get("/jobs/<job_id>/progress")
@operation(
    "Read or follow the progress of a job",
    permission=Permission.VIEW,
    answer=shape_of(pb.ProgressUpdate),
    media="json or events",
)
def get_progress(job_id: str) -> Reply | Response:
    db = plane().db
    native = _native_id(job_id)
    if wants_events(by_default=False):
        return stream(_feed(db, native))
    with db.read() as session:
        now, _ = _progress(session, native)
    if now is None:
        raise NotFound(f"no job {job_id[:128]}")
    return Reply(now)


@blueprint.get("/jobs/<job_id>/report")
@operation(
    "Read the completion report of a finished job", permission=Permission.VIEW, answer=shape_of(pb.CompletionReport)
)
def get_report(job_id: str) -> Reply:
    with plane().db.read() as session:
        job = _found(session, job_id)
        if isinstance(job, str):
            return service_jobs.report(session, job)
        return Reply(report_of(id_of(details(session, job)), reports.completion_report(session, job)))


@blueprint.post("/jobs/<job_id>/cancel")
@operation(
    "Cancel a job",
    permission=Permission.MANAGE,
    body_optional=True,
    answer=shape_of(pb.JobStatus),
    **message_body(pb.CancelJobRequest),
)
def cancel_job(job_id: str, body: pb.CancelJobRequest) -> Reply:
    native = _native_id(job_id)
    if SERVICE_ID.fullmatch(native):
        return service_jobs.cancel(native, body.reason)
    answering = ReplyRecorder(_shown)
    commands.cancel(plane(), caller(), native, reason=body.reason, on_written=answering)
    return answering.reply


@blueprint.post("/jobs/<job_id>/pause")
@operation(
    "Pause a job",
    permission=Permission.MANAGE,
    body_optional=True,
    answer=shape_of(pb.JobStatus),
    **message_body(pb.PauseRequest),
)
def pause_job(job_id: str, body: pb.PauseRequest) -> Reply:
    del body  # it has no fields
    native = _native_id(job_id)
    if SERVICE_ID.fullmatch(native):
        return service_jobs.pause(native)
    answering = ReplyRecorder(_shown)
    # As everywhere in foreign words: save if it can, else stop.
    commands.pause(plane(), caller(), native, force=True, on_written=answering)
    return answering.reply


@blueprint.post("/jobs/<job_id>/resume")
@operation(
    "Resume a paused job",
    permission=Permission.MANAGE,
    body_optional=True,
    answer=shape_of(pb.JobStatus),
    **message_body(pb.ResumeRequest),
)
def resume_job(job_id: str, body: pb.ResumeRequest) -> Reply:
    del body  # it has no fields
    native = _native_id(job_id)
    if SERVICE_ID.fullmatch(native):
        return service_jobs.resume(native)
    answering = ReplyRecorder(_shown)
    commands.resume(plane(), caller(), native, on_written=answering)
    return answering.reply


@blueprint.get("/nodes")
@operation(
    "List the nodes, each with its score",
    permission=Permission.VIEW,
    query=NodeListQuerySchema,
    answer=shape_of(pb.ListNodesResponse),
)
def list_nodes(query: dict[str, Any]) -> Reply:
    needed, on_gpu = query["min_memory_mb"], query.get("required_device") == "CUDA"
    of_gpu, of_node = Request(device_kind="cuda", gpu_memory_min_mb=needed), Request(ram_min_mb=needed)
    request = of_gpu if on_gpu else of_node
    with plane().db.read() as session:
        page = node_lists.page(session, page_request(query))
        capacities = registry.capacities(session, only_ready=False, names=[each.node.name for each in page.items])
        scores = {each.name: score_node(request, each) for each in capacities}
        found = [node_of(each, scores[each.node.name]) for each in page.items]
    token = next_page_token(page, query)
    return Reply(pb.ListNodesResponse(nodes=found, next_page_token=token, total_count=page.total_count))


@blueprint.get("/messages.proto")
@operation("The message definitions, for protoc", permission=None, media="text")
def messages() -> Response:
    text = resources.files("app.compat.cyxwiz").joinpath("messages.proto").read_text(encoding="utf-8")
    return Response(text, mimetype="text/plain")


@blueprint.get("/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))


def _find(session: Session, job_id: str) -> Job:
    """By the client's job_id in the caller's project, or by the native id."""
    if JOB_ID.fullmatch(job_id):
        return lookup.find(session, caller(), job_id)
    alias = alias_of(caller().home_project, job_id)
    return lookup.find_by_alias(session, caller(), alias, missing=f"no job {job_id[:128]}")


def _found(session: Session, job_id: str) -> Job | str:
    """The job, or the id of the service."""
    if SERVICE_ID.fullmatch(job_id):
        return service_lookup.service(session, caller(), job_id).id
    try:
        return _find(session, job_id)
    except NotFound:
        service_id = service_jobs.find(session, job_id)
        if service_id is None:
            raise
        return service_id


def _native_id(job_id: str) -> str:
    with plane().db.read() as session:
        found = _found(session, job_id)
        return found if isinstance(found, str) else found.id


def _shown(session: Session, job: JobDetails) -> Reply:
    return Reply(_statuses(session, [job])[0])


def _statuses(session: Session, found: Sequence[JobDetails]) -> list[pb.JobStatus]:
    short = [each.job.id for each in found if each.job.state in TERMINAL and each.job.state is not JobState.COMPLETED]
    ended_in = history.ended_in(session, short)
    return [status_of(each, ended_in.get(each.job.id)) for each in found]


def _submitted(_session: Session, submitted: Submitted) -> Reply:
    job, wait = submitted.job, submitted.wait_seconds
    foreign = job.foreign["cyxwiz"]
    answer = pb.SubmitJobResponse(
        job_id=foreign.get("job_id") or job.id,
        status=STATES[job.state][0],
        estimated_start_time=moment(utc_now() + timedelta(seconds=wait)) if wait is not None else None,
    )
    return Reply(answer, 201, location=f"{base_path()}/jobs/{answer.job_id}", warnings=submitted.warnings)


def _progress(session: Session, native_id: str) -> tuple[pb.ProgressUpdate | None, bool]:
    """(the progress, None for what was deleted; whether it has ended)."""
    if SERVICE_ID.fullmatch(native_id):
        return service_jobs.progress(session, native_id)
    job = lookup.current(session, native_id)
    if job is None:
        return None, True
    now = details(session, job)
    return progress_of(now), now.job.state in TERMINAL


def _feed(db: Database, job_id: str) -> Feed:
    """The progress at first and after each change, until the job has ended."""
    sent: dict[str, Any] | None = None
    number = 0
    while True:
        with db.read() as session:
            now, has_ended = _progress(session, job_id)
        progress = to_json(now) if now is not None else sent
        if progress != sent:
            sent, number = progress, number + 1
            yield EventFrame(str(number), progress)
        elif has_ended:
            return
        else:
            yield None
