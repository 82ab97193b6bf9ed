"""A terminal in the page: a shell of a running job, whose ticket only pages of the dashboard's own origin can use."""

from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, request

from app.domain.interactive import SHELL
from app.http.context import backend, caller, holder, plane
from app.http.envelope import json_response
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.schemas.interactive import MOST_CELLS, NewSessionSchema
from app.schemas.queries import QueryWhole
from app.security.permissions import Permission
from app.services.interactive import sessions
from app.services.interactive.addresses import session_address
from app.web.forms import form
from trainyard.protocol.interactive import PAGE_TICKET, PROTOCOL

blueprint = Blueprint("web_job_terminal", __name__)
_SESSION = NewSessionSchema()


class TerminalFormSchema(RequestSchema):
    rank = QueryWhole(0, 2**20, load_default=0)
    rows = QueryWhole(1, MOST_CELLS, load_default=24)
    columns = QueryWhole(1, MOST_CELLS, load_default=80)


@blueprint.post("/jobs/<job_id>/terminal")
@operation(
    "Open a shell for a terminal in the page",
    permission=Permission.MANAGE,
    media="document",
    **form(TerminalFormSchema),
)
def open_terminal(job_id: str, body: dict[str, Any]) -> Response:
    """The WebSocket's address, and the subprotocols to offer: scripts can send no header."""
    settings, who = backend().settings, holder()
    origin = request.headers["Origin"]  # which the form's reader has compared with the host
    made = sessions.create(
        plane(),
        settings.security.secret_key,
        caller(),
        job_id,
        replace(_SESSION.load({"kind": SHELL, **body}), origin=origin),
        waiting=lambda: backend().openings.held(who),
    )
    row = made.details.row
    # By the page's own scheme: a proxy may end TLS, and browsers open no ws:// from https://.
    url = session_address(settings.gateway.sessions_url or origin, row.id)
    return json_response(
        {"url": url, "protocols": [PROTOCOL, f"{PAGE_TICKET}{made.ticket}"], "recorded": row.recorded}, 201
    )
