"""A job's log: the last lines as JSON, or a stream that ends with the job."""

import re
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response

from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.sse import Feed, Frame, last_event_id, stream, wants_events
from app.models import Job
from app.schemas.logs import LogLinesSchema, LogQuerySchema, frames_on_the_wire, line_on_the_wire
from app.security.permissions import Permission
from app.services.jobs import lookup
from app.services.requests.control_plane import ControlPlane
from app.storage.logs import START, LogLine, LogReader

blueprint = Blueprint("logs", __name__)
DEFAULT_TAIL = 200
_ID = re.compile(r"([0-9]{1,9}):([0-9]{1,15})")
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
    before: list[LogLine] = []
    after = (int(last[1]), int(last[2])) if last else START
    if last is None and "tail" in query:
        # The stream continues after the newest line, even if the requested tail is empty.
        before, after = _tail(reader, query["tail"], rank, live=live)
    return stream(_feed(here, job_id, before, after, rank, follow=query["follow"]))


def _tail(reader: LogReader, count: int, rank: int | None, *, live: bool) -> tuple[list[LogLine], tuple[int, int]]:
    newest = reader.tail(max(count, 1), rank=rank, live=live)
    after = newest[-1].cursor if newest else START
    return newest[-count:] if count else [], after


def _feed(
    here: ControlPlane, job_id: str, before: list[LogLine], after: tuple[int, int], rank: int | None, *, follow: bool
) -> Feed:
    yield from _frames(before)
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


def _frames(lines: list[LogLine]) -> Iterator[Frame]:
    for line in lines:
        data = line_on_the_wire(line)
        yield Frame(data["id"], data)
