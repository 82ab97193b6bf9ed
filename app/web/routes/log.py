"""A job's log: the lines at any place of it, a search on the server, links to lines, and a download."""

from typing import Any

from flask import Blueprint, Response, stream_with_context
from marshmallow import fields, validate

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.roles import ROLE_NAME
from app.http.context import plane
from app.http.envelope import json_response
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.schemas.queries import QueryFlag, QueryMoment, QueryWhole
from app.schemas.results.logs import MAX_TEXT, LogQuerySchema, asked_ranks, cursor_of, found_on_the_wire, wanted_lines
from app.schemas.spec.tasks import ROLE_RULE
from app.schemas.strict_fields import Matching
from app.security.permissions import Permission
from app.services.telemetry import log_pages
from app.services.telemetry.log_search import search
from app.web.job_frame import find_job, job_page
from app.web.roles.role_instances import labelled_ranks

blueprint = Blueprint("web_log", __name__)
MOST_LINES = 500  # of one request
SHOWN_CHARACTERS = 2000  # of a line in the list; the selected line is shown whole
MOST_FOUND = 200
# Above so many ranks, one is typed instead of chosen: each is an element of the page.
MOST_RANKS = 32
_NUMBER = 10**15 - 1


class LogPageSchema(RequestSchema):
    of_form = True
    attempt = QueryWhole(1, 999_999_999)
    rank = QueryWhole(0, 65536)
    role = Matching(ROLE_NAME, ROLE_RULE)
    line = QueryWhole(1, _NUMBER)
    q = fields.String(validate=validate.Length(max=MAX_TEXT))
    regex = QueryFlag(load_default=False)
    since = QueryMoment(data_key="from", load_default=None)
    until = QueryMoment(data_key="to", load_default=None)
    everywhere = QueryFlag(load_default=False)
    wrap = QueryFlag(load_default=False)


class LogLinesQuerySchema(RequestSchema):
    attempt = QueryWhole(1, 999_999_999, required=True)
    rank = QueryWhole(0, 65536)
    role = Matching(ROLE_NAME, ROLE_RULE)
    first = QueryWhole(1, _NUMBER, required=True)
    last = QueryWhole(1, _NUMBER, required=True)
    whole = QueryFlag(load_default=False)


class LogTextQuerySchema(RequestSchema):
    of_form = True
    attempt = QueryWhole(1, 999_999_999)
    rank = QueryWhole(0, 65536)
    role = Matching(ROLE_NAME, ROLE_RULE)


@blueprint.get("/jobs/<job_id>/log")
@operation("Show the log of a job", permission=Permission.VIEW, query=LogPageSchema, media="html")
def log(job_id: str, query: dict[str, Any]) -> Response:
    job = find_job(job_id)
    ranks = asked_ranks(job.document, query)
    outline = log_pages.outline(plane().storage, job_id, attempt=query.get("attempt"), rank=ranks)
    return job_page(
        "job/log.html",
        job,
        "log",
        query=query,
        outline=outline,
        most_ranks=MOST_RANKS,
        roles=[each.role for each in job.document.tasks],
        labels=dict(labelled_ranks(job.document)),
        ended=job.job.state in TERMINAL,
    )


@blueprint.get("/jobs/<job_id>/log/lines.json")
@operation("Read lines of a job's log", permission=Permission.VIEW, query=LogLinesQuerySchema, media="document")
def lines(job_id: str, query: dict[str, Any]) -> Response:
    """Lines as [number, time, rank, text, whether it is cut]."""
    first, last, attempt = query["first"], query["last"], query["attempt"]
    if not first <= last < first + MOST_LINES:
        raise InvalidRequest(f"ask for 1 to {MOST_LINES} lines", field="last")
    job = find_job(job_id)
    storage, ended, rank = plane().storage, job.job.state in TERMINAL, asked_ranks(job.document, query)
    outline = log_pages.outline(storage, job_id, attempt=attempt, rank=rank)
    found = log_pages.lines_between(storage, job_id, attempt, first, last, rank=rank, live=not ended)
    length = None if query["whole"] else SHOWN_CHARACTERS
    rows = [[one.n, one.at, one.rank, one.line[:length], len(one.line) > SHOWN_CHARACTERS] for one in found]
    newest = outline.attempts[-1] if outline.attempts else attempt
    return json_response({"lines": rows, "last": outline.last, "newest": newest, "ended": ended})


@blueprint.get("/jobs/<job_id>/log/search.json")
@operation("Search the log of a job", permission=Permission.VIEW, query=LogQuerySchema, media="document")
def search_log(job_id: str, query: dict[str, Any]) -> Response:
    job, limit = find_job(job_id).job, min(query.get("limit", MOST_FOUND), MOST_FOUND)
    wanted = wanted_lines(query, asked_ranks(job.document, query))
    live = job.state not in TERMINAL
    found = search(plane().storage, job_id, wanted, cursor_of(query), limit=limit, live=live)
    shown = found_on_the_wire(found)
    for line in shown["lines"]:
        line["line"] = line["line"][:SHOWN_CHARACTERS]
    return json_response(shown)


@blueprint.get("/jobs/<job_id>/log.txt")
@operation("Download the log of a job", permission=Permission.VIEW, query=LogTextQuerySchema, media="text")
def download(job_id: str, query: dict[str, Any]) -> Response:
    ranks = asked_ranks(find_job(job_id).document, query)
    pieces = log_pages.as_text(plane().storage, job_id, attempt=query.get("attempt"), rank=ranks)
    content = (piece.encode("utf-8", "replace") for piece in pieces)
    response = Response(stream_with_context(content), mimetype="text/plain")
    which = f"-attempt-{query['attempt']}" if "attempt" in query else ""
    response.headers["Content-Disposition"] = f'attachment; filename="{job_id}{which}.log"'
    return response
