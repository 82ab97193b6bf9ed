"""A job's events: a list, or a stream that ends with the job."""

import re
from typing import Any

from flask import Blueprint, Response

from app.database.engine import Database
from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.http.sse import Feed, Frame, last_event_id, stream, wants_events
from app.models import Job
from app.schemas.events import EventQuerySchema, EventSchema
from app.security.permissions import Permission
from app.services.jobs import history, lookup

blueprint = Blueprint("events", __name__)
_EVENT = EventSchema()
_ID = re.compile(r"([0-9]{1,9})")


@blueprint.get("/jobs/<job_id>/events")
@operation(
    "List or follow the events of a job",
    permission=Permission.VIEW,
    query=EventQuerySchema,
    answer=EventSchema,
    items="events",
    media="json or events",
)
def list_events(job_id: str, query: dict[str, Any]) -> dict[str, Any] | Response:
    db = plane().db
    with db.read() as session:
        lookup.find(session, caller(), job_id)
        if not wants_events(by_default=False):
            return page_data("events", _EVENT, history.page(session, job_id, page_request(query)), query)
    last = last_event_id(_ID)
    return stream(_feed(db, job_id, int(last[1]) if last else 0))


def _feed(db: Database, job_id: str, seq: int) -> Feed:
    while True:
        with db.read() as session:
            # Read the state before the events: the final state commits together with the last event.
            job = session.get(Job, job_id)
            ended = job is None or job.state in TERMINAL
            events = history.events_after(session, job_id, seq)
        for event in events:
            seq = event.seq
            yield Frame(str(seq), _EVENT.dump(event))
        if not events:
            if ended:
                return
            yield None
