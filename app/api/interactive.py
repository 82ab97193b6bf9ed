"""Reaching running jobs: sessions, ports, and sandboxes that stay after a failure."""

from typing import Any

from flask import Blueprint, Response, request
from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest
from app.http.context import backend, base_path, caller, holder, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.schemas.documents import NothingSchema
from app.schemas.interactive import (
    NewSessionSchema,
    OpenedSessionSchema,
    PortsSchema,
    PortUrlRequestSchema,
    PortUrlSchema,
    SessionQuerySchema,
    SessionSchema,
)
from app.schemas.jobs import JobSchema
from app.security.permissions import Permission
from app.services.interactive import keeping, ports, recordings, sessions
from app.services.interactive.addresses import session_address
from app.services.interactive.sessions import NewSession, WantedSession
from app.services.jobs.details import JobDetails
from trainyard.protocol.interactive import PROTOCOL

blueprint = Blueprint("interactive", __name__)
_SESSION, _OPENED, _PORTS, _URL, _JOB = (
    *(SessionSchema(), OpenedSessionSchema(), PortsSchema()),
    *(PortUrlSchema(), JobSchema()),
)


@blueprint.post("/jobs/<job_id>/sessions")
@operation(
    "Open a session in a running job: a command, a shell, or a connection to a port",
    permission=Permission.MANAGE,
    body=NewSessionSchema,
    answer=OpenedSessionSchema,
    status=201,
)
def create_session(job_id: str, body: WantedSession) -> Reply:
    recorder = ReplyRecorder(_opened, sealed=True)
    who = holder()
    sessions.create(
        plane(),
        backend().settings.security.secret_key,
        caller(),
        job_id,
        body,
        waiting=lambda: backend().openings.held(who),
        on_written=recorder,
    )
    return recorder.reply


@blueprint.get("/jobs/<job_id>/sessions")
@operation(
    "List the sessions of a job",
    permission=Permission.MANAGE,
    query=SessionQuerySchema,
    answer=SessionSchema,
    items="sessions",
)
def list_sessions(job_id: str, query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        found = sessions.page(session, caller(), job_id, page_request(query))
        return page_data("sessions", _SESSION, found, query)


@blueprint.get("/jobs/<job_id>/sessions/<session_id>")
@operation("Get a session", permission=Permission.MANAGE, answer=SessionSchema)
def get_session(job_id: str, session_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_SESSION.dump(sessions.find(session, caller(), job_id, session_id)))


@blueprint.delete("/jobs/<job_id>/sessions/<session_id>")
@operation("End a session", permission=Permission.MANAGE, answer=SessionSchema, status=202)
def end_session(job_id: str, session_id: str) -> Reply:
    return Reply(_SESSION.dump(sessions.end(plane(), caller(), job_id, session_id)), 202)


@blueprint.get("/jobs/<job_id>/sessions/<session_id>/recording")
@operation("Download the recording of a session, as asciicast v2", permission=Permission.MANAGE, media="bytes")
def get_recording(job_id: str, session_id: str) -> Response:
    with plane().db.read() as session:
        row = sessions.recorded(session, caller(), job_id, session_id)
    response = Response(recordings.read(plane().storage, row.job_id, row.id), mimetype=recordings.MEDIA_TYPE)
    response.headers["Content-Disposition"] = f'attachment; filename="{row.id}.cast"'
    return response


@blueprint.get("/jobs/<job_id>/ports")
@operation("List the ports of a job", permission=Permission.VIEW, answer=PortsSchema)
def list_ports(job_id: str) -> Reply:
    with plane().db.read() as session:
        found = ports.listed(session, caller(), job_id, backend().settings.gateway.ports_url)
    return Reply(_PORTS.dump({"ports": found}))


@blueprint.post("/jobs/<job_id>/ports/<name>/url")
@operation(
    "Get an address at which a browser may open a port of a job",
    permission=Permission.VIEW,
    body=PortUrlRequestSchema,
    body_optional=True,
    answer=PortUrlSchema,
    remembers=False,
)
def create_port_url(job_id: str, name: str, body: dict[str, Any]) -> Reply:
    settings = backend().settings
    most = settings.gateway.port_seconds
    seconds = body.get("seconds", most)
    if seconds > most:
        raise InvalidRequest(
            f"seconds is {seconds}, and addresses of ports may be used for {most} at most "
            "(TRAINYARD_GATEWAY_PORT_SECONDS); ask for less, or for another address later",
            field="seconds",
        )
    made = ports.address_of(
        plane(),
        settings.security.secret_key,
        caller(),
        job_id,
        name,
        ports_url=settings.gateway.ports_url,
        seconds=seconds,
    )
    return Reply(_URL.dump(made))


@blueprint.post("/jobs/<job_id>/release")
@operation(
    "End an attempt whose sandbox stays after a failure of its script",
    permission=Permission.MANAGE,
    body=NothingSchema,
    body_optional=True,
    answer=JobSchema,
    status=202,
)
def release_job(job_id: str, body: dict[str, Any]) -> Reply:
    del body  # it has no fields
    recorder = ReplyRecorder(_shown)
    keeping.release(plane(), caller(), job_id, on_written=recorder)
    return recorder.reply


def _shown(_session: Session, job: JobDetails) -> Reply:
    return Reply(_JOB.dump(job), 202)


def _opened(_session: Session, made: NewSession) -> Reply:
    row = made.details.row
    data = {
        "session": made.details,
        "url": session_address(backend().settings.gateway.sessions_url or request.host_url, row.id),
        "ticket": made.ticket,
        "ticket_expires_at": made.expires_at,
        "protocol": PROTOCOL,
    }
    return Reply(_OPENED.dump(data), 201, location=f"{base_path()}/jobs/{row.job_id}/sessions/{row.id}")
