"""Routes of workloads of all kinds: lists, metrics, events, history, pods and batch actions."""

import math
import uuid
from datetime import timedelta
from itertools import islice
from typing import Any

from flask import Blueprint
from marshmallow import Schema

from app.compat.every_job import MAX_JOBS
from app.compat.runai import lookup
from app.compat.runai.documents.requests import BatchSchema
from app.compat.runai.from_native import event_of, pods_of, record_of, workload_of
from app.compat.runai.measurements import (
    KINDS,
    REQUESTS,
    SERIES,
    MeasurementPoint,
    Window,
    counted,
    measured,
    requested,
)
from app.compat.runai.owners import Owners
from app.compat.runai.queries import CountQuerySchema, MeasurementsQuerySchema, WorkloadsQuerySchema
from app.domain.errors import BadSpec, TrainyardError
from app.http.context import dialect, plane
from app.http.envelope import Reply
from app.http.errors import problem_of
from app.http.operation import operation
from app.schemas.queries import QueryWhole
from app.security.permissions import Permission
from app.services.jobs import history
from app.services.rows import JobEvent, Session
from app.services.telemetry import stored_metrics

blueprint = Blueprint("workloads", __name__)
_VERBS = {"delete": lookup.delete, "suspend": lookup.suspend, "resume": lookup.resume}
_FRESHEST = timedelta(seconds=60)


class WorkloadEventsQuerySchema(Schema):
    offset = QueryWhole(0, MAX_JOBS, load_default=0)
    limit = QueryWhole(1, 500, load_default=50)


@blueprint.get("/workloads")
@operation("List the workloads", permission=Permission.VIEW, query=WorkloadsQuerySchema)
def list_workloads(query: dict[str, Any]) -> Reply:
    begin, limit = query["offset"], query["limit"]
    with plane().db.read() as session:
        rows = list(islice(lookup.rows(session, query), begin, begin + limit + 1))
    following = {"next": begin + limit} if len(rows) > limit else {}
    return Reply({"workloads": rows[:limit], **following})


@blueprint.get("/workloads/count")
@operation("Count the workloads", permission=Permission.VIEW, query=CountQuerySchema)
def count_workloads(query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        return Reply({"count": sum(1 for _ in lookup.rows(session, query))})


@blueprint.post("/workloads/batch")
@operation("Delete, suspend or resume several workloads", permission=Permission.MANAGE, body=BatchSchema)
def act_on_workloads(body: dict[str, Any]) -> Reply:
    succeeded: list[str] = []
    failed: list[dict[str, Any]] = []
    for each in dict.fromkeys(map(str, body["ids"])):
        try:
            _VERBS[body["action"]](each)
        except TrainyardError as error:
            problem = problem_of(error)
            failed.append({"id": each, "code": dialect().status_of(problem.status), "message": problem.message})
        else:
            succeeded.append(each)
    return Reply({"id": str(uuid.uuid4()), "succeeded": succeeded, "failed": failed})


@blueprint.get("/workloads/<workload_id>")
@operation("Read a workload", permission=Permission.VIEW)
def get_workload(workload_id: str) -> Reply:
    with plane().db.read() as session:
        found = lookup.find(session, workload_id)
        return Reply(workload_of(found, Owners(session).of(found.job)))


@blueprint.get("/workloads/<workload_id>/metrics")
@operation("Read metrics of a workload", permission=Permission.VIEW, query=MeasurementsQuerySchema)
def get_measurements(workload_id: str, query: dict[str, Any]) -> Reply:
    if query["start"] >= query["end"]:
        raise BadSpec("must be before end", field="start")
    window = Window(query["start"], query["end"], query["numberOfSamples"])
    with plane().db.read() as session:
        found = lookup.find(session, workload_id)
        series = _series(session, found.job.id, query["metricType"])
        attempts = history.attempts(session, found.job.id)
        measurements = []
        for kind in query["metricType"]:
            if kind in SERIES:
                measurements.append(measured(kind, series.get(kind, []), window, freshest=_FRESHEST))
            elif kind in REQUESTS:
                measurements.append(requested(kind, found.document.resource_config, window, found.document.tasks))
            elif kind in KINDS:
                measurements.append(counted(kind, attempts, window, found.document.tasks))
            else:
                measurements.append({"type": kind, "labels": {}, "values": []})
    return Reply({"measurements": measurements})


@blueprint.get("/workloads/<workload_id>/events")
@operation("List the events of a workload, newest first", permission=Permission.VIEW, query=WorkloadEventsQuerySchema)
def list_events(workload_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        events, following = _newest(session, workload_id, query)
        return Reply({"events": [event_of(event) for event in events], **following})


@blueprint.get("/workloads/<workload_id>/history")
@operation(
    "List events and phases of a workload, newest first", permission=Permission.VIEW, query=WorkloadEventsQuerySchema
)
def list_history(workload_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        events, following = _newest(session, workload_id, query)
        return Reply({"records": [record_of(event) for event in events], **following})


@blueprint.get("/workloads/<workload_id>/pods")
@operation("List the pods of a workload, one per node", permission=Permission.VIEW, query=WorkloadEventsQuerySchema)
def list_pods(workload_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        found = lookup.find(session, workload_id)
        attempts = history.attempts(session, found.job.id)
        pods = pods_of(found, attempts[-1] if attempts else None, Owners(session).of(found.job))
    begin, end = query["offset"], query["offset"] + query["limit"]
    return Reply({"pods": pods[begin:end], **({"next": end} if end < len(pods) else {})})


def _newest(session: Session, workload: str, query: dict[str, Any]) -> tuple[list[JobEvent], dict[str, int]]:
    """A page of its events, the newest first, and the offset of the next page."""
    job = lookup.find(session, workload).job
    # The numbers of a job's events have no gaps, so the last one is their count.
    last = job.event_seq - query["offset"]
    events = history.events_after(session, job.id, max(0, last - query["limit"]), limit=query["limit"])
    following = {"next": query["offset"] + query["limit"]} if last > query["limit"] else {}
    return [event for event in events if event.seq <= last][::-1], following


def _series(session: Session, job_id: str, kinds: list[str]) -> dict[str, list[MeasurementPoint]]:
    wanted = {SERIES[kind][0]: kind for kind in kinds if kind in SERIES}
    found = stored_metrics.series(session, job_id, names=list(wanted), max_points=2000) if wanted else {}
    return {
        wanted[name]: sorted(MeasurementPoint(each.at, each.value) for each in points if math.isfinite(each.value))
        for name, points in found.items()
    }
