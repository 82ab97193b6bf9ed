"""A job's events: a list, or a stream that ends with the job."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from flask import Blueprint, Response
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.event_feed import stream_of_events
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.http.sse import wants_events
from app.models import Job, JobEvent
from app.schemas.results.events import EventQuerySchema, EventSchema
from app.security.permissions import Permission
from app.services.jobs import history, lookup

blueprint = Blueprint("events", __name__)
_EVENT = EventSchema()


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
    return stream_of_events(db, partial(_newer_events, job_id))


def _newer_events(job_id: str, session: Session, seq: int) -> tuple[bool, Sequence[JobEvent]]:
    # The state is read before the events: the final one commits together with the last event.
    job = session.get(Job, job_id)
    has_ended = job is None or job.state in TERMINAL
    return has_ended, history.events_after(session, job_id, seq)
