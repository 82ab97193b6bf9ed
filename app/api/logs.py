"""A job's log: the last lines as JSON, or a stream that ends with the job."""

import re
from typing import Any

from flask import Blueprint, Response

from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.sse import Feed, last_event_id, stream, wants_events
from app.models import Job
from app.schemas.logs import LogLinesSchema, LogQuerySchema, frames_on_the_wire, line_on_the_wire
from app.security.permissions import Permission
from app.services.jobs import lookup
from app.services.requests.control_plane import ControlPlane
from app.storage.logs import START, Cursor, LogLines, LogReader

blueprint = Blueprint("logs", __name__)
DEFAULT_TAIL = 200
_ID = re.compile(r"([0-9]{1,9}):([0-9]{1,15}(?:,[0-9]{1,15})*)")  # of several nodes, a number of each
# Lines that are read at once, and characters after which no further block is: lines may have 16 KiB.
_BATCH, _ENOUGH = 10_000, 1 << 20


@blueprint.get("/jobs/<job_id>/logs")
@operation(
    "Read or follow the log of a job",
    permission=Permission.VIEW,
    query=LogQuerySchema,
    answer=LogLinesSchema,
    media="json or events",
)
def read_logs(job_id: str, query: dict[str, Any]) -> dict[str, Any] | Response:
    here = plane()
    with here.db.read() as session:
        live = lookup.find(session, caller(), job_id).state not in TERMINAL
    reader, rank = LogReader(here.storage, job_id), query.get("rank")
    if not wants_events(by_default=True):
        lines = reader.tail(query.get("tail", DEFAULT_TAIL), rank=rank, live=live)
        return {"lines": [line_on_the_wire(line) for line in lines]}
    last = last_event_id(_ID)
    before: list[LogLines] = []
    after: Cursor = (int(last[1]), *map(int, last[2].split(","))) if last else START
    if last is None and "tail" in query:
        # The stream continues after the newest line, even if the requested tail is empty.
        newest = reader.tail_blocks(max(query["tail"], 1), rank=rank, live=live)
        before, after = newest if query["tail"] else [], newest[-1].cursor if newest else START
    return stream(_feed(here, job_id, before, after, rank, follow=query["follow"]))


def _feed(
    here: ControlPlane, job_id: str, before: list[LogLines], after: Cursor, rank: int | None, *, follow: bool
) -> Feed:
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
