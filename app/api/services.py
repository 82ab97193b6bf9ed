"""Services: models that answer requests, their replicas and what was asked of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flask import Blueprint, Response
from sqlalchemy.orm import Session

from app.api.forwarding import FORWARDED, forwarded_tokens
from app.domain.lifecycle.states import TERMINAL
from app.domain.serving.states import ServiceState
from app.http.context import base_path, caller, plane
from app.http.envelope import Reply
from app.http.event_feed import stream_of_events
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.http.sse import wants_events
from app.models import Service, ServiceEvent
from app.schemas.documents import NothingSchema
from app.schemas.jobs import DryRunSchema, SubmitQuerySchema
from app.schemas.results.events import EventQuerySchema
from app.schemas.results.logs import LogLinesSchema, line_on_the_wire
from app.schemas.results.metrics import points_on_the_wire
from app.schemas.service_answers import (
    CreatedServiceSchema,
    ModelUsageSchema,
    ReplicaSchema,
    ServiceEventSchema,
    ServiceMetricsSchema,
    ServiceSchema,
)
from app.schemas.services import (
    ChangeServiceSchema,
    CreateServiceSchema,
    ReplicaQuerySchema,
    ServiceLogQuerySchema,
    ServiceMetricsQuerySchema,
    ServiceQuerySchema,
    UsageQuerySchema,
)
from app.security.permissions import Permission
from app.services.serving import commands, creation, history, listing, live_data, lookup, usage
from app.services.serving.creation import CreatedService, NewService
from app.services.telemetry import stored_metrics
from app.storage.logs import LogReader

blueprint = Blueprint("services", __name__)
_SERVICE, _REPLICA, _EVENT, _METRICS = ServiceSchema(), ReplicaSchema(), ServiceEventSchema(), ServiceMetricsSchema()
_CREATED, _DRY_RUN, _USAGE = CreatedServiceSchema(), DryRunSchema(), ModelUsageSchema()
_DEFAULT_TAIL = 200
# A control request that takes no fields.
_request = partial(operation, permission=Permission.MANAGE, body=NothingSchema, body_optional=True)


@blueprint.post("/services")
@operation(
    "Create a service: a model that answers requests",
    permission=Permission.MANAGE,
    query=SubmitQuerySchema,
    body=CreateServiceSchema,
    answer=CreatedServiceSchema,
    status=201,
    also={200: DryRunSchema},
    headers=FORWARDED,
)
def create_service(query: dict[str, Any], body: NewService) -> Reply:
    wanted: dict[str, Any] = {"project": query.get("project"), "forwarded": forwarded_tokens()}
    if query["dry_run"]:
        # Not stored under an Idempotency-Key: a dry run has no effect to repeat.
        plan, warnings = creation.plan(plane(), caller(), body, **wanted)
        return Reply(_DRY_RUN.dump({"valid": True, "plan": plan, "warnings": warnings}))
    recorder = ReplyRecorder(_created)
    creation.create(plane(), caller(), body, **wanted, on_written=recorder)
    return recorder.reply


@blueprint.get("/services")
@operation(
    "List services", permission=Permission.VIEW, query=ServiceQuerySchema, answer=ServiceSchema, items="services"
)
def list_services(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("services", _SERVICE, listing.page(session, caller(), query, page_request(query)), query)


@blueprint.get("/services/<service_id>")
@operation("Get a service, by its id or the name of a live one", permission=Permission.VIEW, answer=ServiceSchema)
def get_service(service_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_SERVICE.dump(listing.one(session, caller(), service_id)))


@blueprint.patch("/services/<service_id>")
@operation(
    "Update a service; replicas that must be replaced are drained once new ones answer",
    permission=Permission.MANAGE,
    body=ChangeServiceSchema,
    answer=ServiceSchema,
)
def change_service(service_id: str, body: dict[str, Any]) -> Reply:
    return _commanded(partial(commands.change, plane(), caller(), service_id, body))


@blueprint.delete("/services/<service_id>")
@operation("End a service; its replicas finish the requests that they have", permission=Permission.MANAGE, status=204)
def delete_service(service_id: str) -> Reply:
    commands.delete(plane(), caller(), service_id)
    return Reply(None, 204)


@blueprint.post("/services/<service_id>/pause")
@_request("Drain the replicas of a service and refuse its requests", answer=ServiceSchema)
def pause_service(service_id: str, body: dict[str, Any]) -> Reply:
    del body
    return _commanded(partial(commands.pause, plane(), caller(), service_id))


@blueprint.post("/services/<service_id>/resume")
@_request("Let a paused service answer again", answer=ServiceSchema)
def resume_service(service_id: str, body: dict[str, Any]) -> Reply:
    del body
    return _commanded(partial(commands.resume, plane(), caller(), service_id))


@blueprint.get("/services/<service_id>/replicas")
@operation(
    "List the replicas of a service, which are jobs",
    permission=Permission.VIEW,
    query=ReplicaQuerySchema,
    answer=ReplicaSchema,
    items="replicas",
)
def list_replicas(service_id: str, query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        service = lookup.service(session, caller(), service_id)
        return page_data("replicas", _REPLICA, listing.replicas(session, service, query, page_request(query)), query)


@blueprint.get("/services/<service_id>/events")
@operation(
    "List or follow the events of a service",
    permission=Permission.VIEW,
    query=EventQuerySchema,
    answer=ServiceEventSchema,
    items="events",
    media="json or events",
)
def list_service_events(service_id: str, query: dict[str, Any]) -> dict[str, Any] | Response:
    db = plane().db
    with db.read() as session:
        found = lookup.service(session, caller(), service_id).id
        if not wants_events(by_default=False):
            return page_data("events", _EVENT, history.events(session, found, page_request(query)), query)
    return stream_of_events(db, partial(_newer_events, found))


@blueprint.get("/services/<service_id>/metrics")
@operation(
    "Get the load of a service and the metrics of its replicas",
    permission=Permission.VIEW,
    query=ServiceMetricsQuerySchema,
    answer=ServiceMetricsSchema,
)
def get_service_metrics(service_id: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        details = listing.one(session, caller(), service_id)
        series = {
            str(replica.number): {
                name: points_on_the_wire(points)
                for name, points in stored_metrics.series(session, replica.job_id, since_step=-1, **query).items()
            }
            for replica in live_data.live_replicas(session, details.service.id)
        }
        return Reply(_METRICS.dump({"now": details, "replicas": series}))


@blueprint.get("/services/<service_id>/logs")
@operation(
    "Read the last log lines of a replica of a service",
    permission=Permission.VIEW,
    query=ServiceLogQuerySchema,
    answer=LogLinesSchema,
)
def read_service_logs(service_id: str, query: dict[str, Any]) -> dict[str, Any]:
    here = plane()
    with here.db.read() as session:
        service = lookup.service(session, caller(), service_id)
        job = live_data.job_with_log(session, service, query.get("replica"))
    if job is None:
        return {"lines": []}
    reader = LogReader(here.storage, job.id)
    lines = reader.tail(query.get("tail", _DEFAULT_TAIL), rank=None, live=job.state not in TERMINAL)
    return {"lines": [line_on_the_wire(line) for line in lines]}


@blueprint.get("/usage")
@operation(
    "List what was asked of models, by key, model and day",
    permission=Permission.VIEW,
    query=UsageQuerySchema,
    answer=ModelUsageSchema,
    items="usage",
)
def list_usage(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("usage", _USAGE, usage.page(session, caller(), query, page_request(query)), query)


def _newer_events(service_id: str, session: Session, seq: int) -> tuple[bool, Sequence[ServiceEvent]]:
    # The state is read before the events: the final one commits together with the last event.
    service = session.get(Service, service_id)
    has_ended = service is None or service.status == ServiceState.ENDED
    return has_ended, live_data.events_after(session, service_id, seq)


def _created(_session: Session, created: CreatedService) -> Reply:
    service = created.service
    least = service.spec.get("replicas", {}).get("min", 0)
    data = {
        "service_id": service.id,
        "name": service.name,
        "status": service.status,
        "message": f"{service.name} gets its first replica "
        + ("as soon as it can start" if least else "when it is asked something"),
        "warnings": list(created.warnings),
    }
    return Reply(data, 201, location=f"{base_path()}/services/{service.id}")


def _commanded(command: Callable[..., Any]) -> Reply:
    recorder = ReplyRecorder(lambda session, service: Reply(_SERVICE.dump(listing.details(session, service))))
    command(on_written=recorder)
    return recorder.reply
