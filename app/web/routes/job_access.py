"""How people reach a running job: its ports, and the sessions in its sandbox."""

from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.interactive import what_runs
from app.domain.lifecycle.states import RUNNING
from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.interactive import keeping, ports, sessions
from app.services.interactive.addresses import sessions_address
from app.services.requests.pagination import PageRequest
from app.web.forms import NoFieldsSchema, form
from app.web.job_frame import find_job, job_page
from app.web.pages import done, may_connect, page
from app.web.roles.role_instances import labelled_ranks

blueprint = Blueprint("web_job_access", __name__)
_SHOWN_SESSIONS = 50


@blueprint.get("/jobs/<job_id>/access")
@operation("Show how a job is reached", permission=Permission.VIEW, media="html")
def access(job_id: str) -> Response:
    found = find_job(job_id)
    settings = backend().settings.gateway
    with plane().db.read() as session:
        listed = ports.listed(session, caller(), job_id, settings.ports_url)
        opened = (
            sessions.page(session, caller(), job_id, PageRequest(size=_SHOWN_SESSIONS, order="-created_at")).items
            if caller().may(Permission.MANAGE)
            else []
        )
    response = job_page(
        "job/access.html",
        found,
        "access",
        ranks=labelled_ranks(found.document),
        ports=listed,
        sessions=opened,
        what_runs=what_runs,
        ready=found.job.ready,
        is_running=found.job.state in RUNNING,
    )
    # Without an address of its own, the gateway is reached at this host.
    return may_connect(response, sessions_address(settings.sessions_url)) if settings.sessions_url else response


@blueprint.post("/jobs/<job_id>/ports/<name>/open")
@operation("Open a port of a job", permission=Permission.VIEW, media="html", **form(NoFieldsSchema))
def open_port(job_id: str, name: str, body: dict[str, Any]) -> Response:
    """A page that leads on: browsers follow no redirect of a form to another host under our policy."""
    del body
    settings = backend().settings
    made = ports.address_of(
        plane(),
        settings.security.secret_key,
        caller(),
        job_id,
        name,
        ports_url=settings.gateway.ports_url,
        seconds=settings.gateway.port_seconds,
    )
    response = page("job/opened_port.html", job=find_job(job_id), name=name, address=made)
    response.headers["Refresh"] = f"0; url={made.url}"
    # The address is a credential: it stays out of every cache, and of what the job reads.
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


@blueprint.post("/jobs/<job_id>/sessions/<session_id>/end")
@operation("End a session in a job", permission=Permission.MANAGE, media="html", **form(NoFieldsSchema))
def end_session(job_id: str, session_id: str, body: dict[str, Any]) -> Response:
    del body
    sessions.end(plane(), caller(), job_id, session_id)
    return done("The session ends.", url_for("web_job_access.access", job_id=job_id))


@blueprint.post("/jobs/<job_id>/release")
@operation("Let go of a job that is kept", permission=Permission.MANAGE, media="html", **form(NoFieldsSchema))
def release(job_id: str, body: dict[str, Any]) -> Response:
    del body
    keeping.release(plane(), caller(), job_id)
    return done("The job ends as it would have without being kept.", url_for("web_job.job", job_id=job_id))
