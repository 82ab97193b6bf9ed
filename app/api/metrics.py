"""A job's metrics: downsampled series, or a stream of new points."""

import re
from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Response

from app.database.engine import Database
from app.domain.json_numbers import json_number, number_of
from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.http.sse import EventFrame, Feed, last_event_id, stream
from app.models import Job
from app.schemas.results.metrics import MetricsQuerySchema, MetricsSchema, MetricStreamQuerySchema, points_on_the_wire
from app.schemas.strict_fields import on_the_wire
from app.security.permissions import Permission
from app.services.attempts import checkpoints
from app.services.jobs import lookup
from app.services.telemetry import live_metrics, stored_metrics

blueprint = Blueprint("metrics", __name__)
_METRICS = MetricsSchema()
_ID = re.compile(r"([0-9]{1,18})")  # fits into the 64-bit column of sequence numbers


@blueprint.get("/jobs/<job_id>/metrics")
@operation("Get the metrics of a job", permission=Permission.VIEW, query=MetricsQuerySchema, answer=MetricsSchema)
def get_metrics(job_id: str, query: dict[str, Any]) -> Reply:
    since = max(query.pop("since_step"), query.pop("from_step") - 1)
    with plane().db.read() as session:
        job = lookup.find(session, caller(), job_id)
        found = stored_metrics.series(session, job_id, since_step=since, **query)
        saved = checkpoints.list_for(session, job_id)
    series = {name: points_on_the_wire(points) for name, points in found.items()}
    return Reply(_METRICS.dump({"latest": job.latest_metrics, "series": series, "checkpoints": saved}))


@blueprint.get("/jobs/<job_id>/metrics/stream")
@operation("Follow the metrics of a job", permission=Permission.VIEW, query=MetricStreamQuerySchema, media="events")
def stream_metrics(job_id: str, query: dict[str, Any]) -> Response:
    db = plane().db
    with db.read() as session:
        lookup.find(session, caller(), job_id)
    last = last_event_id(_ID)
    return stream(_feed(db, job_id, int(last[1]) if last else 0, query["names"]))


def _feed(db: Database, job_id: str, seq: int, names: Sequence[str]) -> Feed:
    while True:
        with db.read() as session:
            job = session.get(Job, job_id)
            ended = job is None or job.state in TERMINAL
            points = live_metrics.points_after(session, job_id, seq, names=names)
        for point in points:
            seq, value = point.seq, json_number(number_of(point.value, point.special))
            yield EventFrame(
                str(seq), {"name": point.name, "step": point.step, "at": on_the_wire(point.at), "value": value}
            )
        if not points:
            if ended:
                return
            yield None
