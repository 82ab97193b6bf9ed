"""A job's log: the last lines or those of a search as JSON, or a stream that ends with the job."""

from typing import Any

from flask import Blueprint, Response

from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.sse import Feed, last_event_id, stream, wants_events
from app.models import Job
from app.schemas.results.logs import (
    CURSOR,
    FoundLogLinesSchema,
    LogQuerySchema,
    asked_ranks,
    cursor_of,
    found_on_the_wire,
    frames_on_the_wire,
    is_search,
    line_on_the_wire,
    wanted_lines,
)
from app.security.permissions import Permission
from app.services.jobs import lookup
from app.services.requests.control_plane import ControlPlane
from app.services.telemetry.log_search import MAX_FOUND, search
from app.storage.logs import START, Cursor, LogLines, LogReader, Ranks

blueprint = Blueprint("logs", __name__)
DEFAULT_TAIL = 200
# Lines that are read at once, and characters after which no further block is: lines may have 16 KiB.
_BATCH, _ENOUGH = 10_000, 1 << 20


@blueprint.get("/jobs/<job_id>/logs")
@operation(
    "Read, follow or search the log of a job",
    permission=Permission.VIEW,
    query=LogQuerySchema,
    answer=FoundLogLinesSchema,
    media="json or events",
)
def read_logs(job_id: str, query: dict[str, Any]) -> dict[str, Any] | Response:
    here = plane()
    with here.db.read() as session:
        job = lookup.find(session, caller(), job_id)
        live, rank = job.state not in TERMINAL, asked_ranks(job.document, query)
    if is_search(query):
        return _found(here, job_id, query, rank, live=live)
    reader = LogReader(here.storage, job_id)
    if not wants_events(by_default=True):
        lines = reader.tail(query.get("tail", DEFAULT_TAIL), rank=rank, live=live)
        return {"lines": [line_on_the_wire(line) for line in lines]}
    last = last_event_id(CURSOR)
    before: list[LogLines] = []
    after: Cursor = (int(last[1]), *map(int, last[2].split(","))) if last else START
    if last is None and "tail" in query:
        # The stream continues after the newest line, even if the requested tail is empty.
        newest = reader.tail_blocks(max(query["tail"], 1), rank=rank, live=live)
        before, after = newest if query["tail"] else [], newest[-1].cursor if newest else START
    return stream(_feed(here, job_id, before, after, rank, follow=query["follow"]))


def _found(here: ControlPlane, job_id: str, query: dict[str, Any], rank: Ranks, *, live: bool) -> dict[str, Any]:
    if "tail" in query:
        raise InvalidRequest(
            "a search reads from the beginning; omit tail, or the parameters of the search", field="tail"
        )
    after, limit = cursor_of(query), query.get("limit", MAX_FOUND)
    return found_on_the_wire(search(here.storage, job_id, wanted_lines(query, rank), after, limit=limit, live=live))


def _feed(here: ControlPlane, job_id: str, before: list[LogLines], after: Cursor, rank: Ranks, *, follow: bool) -> Feed:
    yield from map(frames_on_the_wire, before)
    reader = LogReader(here.storage, job_id)
    while True:
        with here.db.read() as session:
            job = session.get(Job, job_id)
            ended = job is None or job.state in TERMINAL
        # Read the state before the lines: a job's last lines are stored before it ends.
        found = reader.read_blocks(after, rank=rank, limit=_BATCH, enough=_ENOUGH, live=not ended)
        yield from map(frames_on_the_wire, found)
        if found:
            after = found[-1].cursor
        elif ended or not follow:
            return
        else:
            yield None
