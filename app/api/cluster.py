"""Queues, waiting jobs, shares, nodes, registered models, and the cluster summary."""

from typing import Any

from flask import Blueprint, Response, request

from app.http.context import backend, base_path, caller, plane
from app.http.csv_tables import CSV, table_of
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.models.base import utc_now
from app.schemas.cluster import ClusterSchema
from app.schemas.nodes import (
    ChangeLabelsSchema,
    ChangeNodeSchema,
    DrainedNodeSchema,
    DrainSchema,
    NoBodySchema,
    NodeFitSchema,
    NodeQuerySchema,
    NodeSchema,
    NodeUsageQuerySchema,
    NodeUsageSchema,
    PlacementSchema,
    PutBackSchema,
)
from app.schemas.projects import GpuHoursListSchema, GpuHoursQuerySchema, SharesSchema
from app.schemas.queues import (
    ChangeQueueSchema,
    CreateQueueSchema,
    QueueSchema,
    QueuesSchema,
    WaitingJobQuerySchema,
    WaitingJobSchema,
)
from app.schemas.registered_models import RegisteredModelSchema, RegisteredModelsSchema, RegisterModelSchema
from app.security.permissions import Permission
from app.services.jobs import details, explain_placement, lookup
from app.services.model_registry import registered
from app.services.nodes import device_usage, labels, listing, maintenance, stuck_devices
from app.services.operations import cluster_summary
from app.services.operations.readiness import failing_parts
from app.services.queues import gpu_hours, queues
from app.services.queues.shares import project_shares
from app.services.scheduling import planner

blueprint = Blueprint("cluster", __name__)
_QUEUE, _QUEUES, _ENTRY = QueueSchema(), QueuesSchema(), WaitingJobSchema()
_NODE, _DRAINED, _FIT, _CLUSTER = NodeSchema(), DrainedNodeSchema(), NodeFitSchema(), ClusterSchema()
_PLACEMENT, _SHARES, _PUT_BACK = PlacementSchema(), SharesSchema(), PutBackSchema()
_NODE_USAGE, _GPU_HOURS = NodeUsageSchema(), GpuHoursListSchema()
_MODEL, _MODELS = RegisteredModelSchema(), RegisteredModelsSchema()


@blueprint.get("/queues")
@operation("List queues", permission=Permission.VIEW, answer=QueuesSchema)
def list_queues() -> Reply:
    with plane().db.read() as session:
        return Reply(_QUEUES.dump({"queues": queues.summaries(session, caller())}))


@blueprint.post("/queues")
@operation(
    "Create a queue", permission=Permission.CLUSTER_ADMIN, body=CreateQueueSchema, answer=QueueSchema, status=201
)
def create_queue(body: dict[str, Any]) -> Reply:
    name, base = body.pop("name"), base_path()
    recorder = ReplyRecorder(lambda _, made: Reply(_QUEUE.dump(made), 201, location=f"{base}/queues/{name}"))
    queues.create(plane().db, caller(), name, body, on_written=recorder)
    return recorder.reply


@blueprint.get("/queues/<name>")
@operation("Get a queue", permission=Permission.VIEW, answer=QueueSchema)
def get_queue(name: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_QUEUE.dump(queues.summary(session, caller(), name)))


@blueprint.patch("/queues/<name>")
@operation(
    "Pause, resume or limit a queue", permission=Permission.CLUSTER_ADMIN, body=ChangeQueueSchema, answer=QueueSchema
)
def change_queue(name: str, body: dict[str, Any]) -> Reply:
    return Reply(_QUEUE.dump(queues.change(plane().db, caller(), name, body)))


@blueprint.get("/queue")
@operation(
    "List waiting jobs in order of service",
    permission=Permission.VIEW,
    query=WaitingJobQuerySchema,
    answer=WaitingJobSchema,
    items="entries",
)
def list_waiting_jobs(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        line = queues.line(session, caller(), page_request(query), queue=query.get("queue"), now=utc_now())
    return page_data("entries", _ENTRY, line, query)


@blueprint.get("/shares")
@operation("List the shares of projects in serving order", permission=Permission.VIEW, answer=SharesSchema)
def list_shares() -> Reply:
    with plane().db.read() as session:
        return Reply(_SHARES.dump({"shares": project_shares(session, caller())}))


@blueprint.get("/usage/devices")
@operation(
    "Get the GPU-hours of projects by month",
    permission=Permission.VIEW,
    query=GpuHoursQuerySchema,
    answer=GpuHoursListSchema,
    media="json or csv",
)
def get_gpu_hours(query: dict[str, Any]) -> Reply | Response:
    with plane().db.read() as session:
        found = gpu_hours.by_project_and_month(session, caller(), query)
    if request.accept_mimetypes.best_match(["application/json", CSV]) == CSV:
        columns = [name for name in gpu_hours.GROUPS if name in query["by"]]
        return Response(table_of(found, (*columns, "gpu_hours")), mimetype=CSV)
    return Reply(_GPU_HOURS.dump({"usage": found}))


@blueprint.get("/jobs/<job_id>/placement")
@operation("Explain why a job waits, and where it can start", permission=Permission.VIEW, answer=PlacementSchema)
def explain_job(job_id: str) -> Reply:
    weights = planner.weights_of(backend().settings)
    with plane().db.read() as session:
        job = details.details(session, lookup.find(session, caller(), job_id))
        nodes = explain_placement.why_everywhere(session, caller(), job_id, weights)
        return Reply(_PLACEMENT.dump({"job": job, "nodes": nodes}))


@blueprint.get("/nodes")
@operation("List nodes", permission=Permission.VIEW, query=NodeQuerySchema, answer=NodeSchema, items="nodes")
def list_nodes(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("nodes", _NODE, listing.page(session, page_request(query)), query)


@blueprint.get("/nodes/<name>")
@operation("Get a node", permission=Permission.VIEW, answer=NodeSchema)
def get_node(name: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_NODE.dump(listing.find(session, name)))


@blueprint.get("/nodes/<name>/usage")
@operation(
    "Get what a node and its devices did, minute by minute",
    permission=Permission.VIEW,
    query=NodeUsageQuerySchema,
    answer=NodeUsageSchema,
)
def get_node_usage(name: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        return Reply(_NODE_USAGE.dump({"name": name, "samples": device_usage.history(session, name, **query)}))


@blueprint.patch("/nodes/<name>")
@operation("Set the labels of a node", permission=Permission.CLUSTER_ADMIN, body=ChangeNodeSchema, answer=NodeSchema)
def change_node(name: str, body: dict[str, Any]) -> Reply:
    return Reply(_NODE.dump(labels.replace(plane().db, caller(), name, body["labels"])))


@blueprint.post("/nodes/<name>/labels")
@operation(
    "Add or remove labels of a node",
    permission=Permission.CLUSTER_ADMIN,
    body=ChangeLabelsSchema,
    body_optional=True,
    answer=NodeSchema,
)
def change_labels(name: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(lambda _, node: Reply(_NODE.dump(node)))
    labels.add_and_remove(plane().db, caller(), name, **body, on_written=recorder)
    return recorder.reply


@blueprint.delete("/nodes/<name>")
@operation("Remove a lost node", permission=Permission.CLUSTER_ADMIN, status=204)
def remove_node(name: str) -> Reply:
    maintenance.remove(plane().db, caller(), name)
    return Reply(None, 204)


@blueprint.post("/nodes/<name>/put-back")
@operation(
    "Return devices to service whose unkillable process is gone",
    permission=Permission.CLUSTER_ADMIN,
    body=NoBodySchema,
    body_optional=True,
    answer=PutBackSchema,
)
def put_devices_back(name: str, body: dict[str, Any]) -> Reply:
    del body
    recorder = ReplyRecorder(lambda _, count: Reply(_PUT_BACK.dump({"name": name, "devices": count})))
    stuck_devices.put_back_by_hand(plane().db, caller(), name, on_written=recorder)
    return recorder.reply


@blueprint.get("/nodes/<name>/why/<job_id>")
@operation("Explain whether a job can start on a node", permission=Permission.VIEW, answer=NodeFitSchema)
def explain_node(name: str, job_id: str) -> Reply:
    weights = planner.weights_of(backend().settings)
    with plane().db.read() as session:
        return Reply(_FIT.dump(explain_placement.why(session, caller(), name, job_id, weights)))


@blueprint.post("/nodes/<name>/drain")
@operation(
    "Drain a node: schedule no new jobs on it",
    permission=Permission.CLUSTER_ADMIN,
    body=DrainSchema,
    body_optional=True,
    answer=DrainedNodeSchema,
)
def drain_node(name: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(lambda _, drained: Reply(_DRAINED.dump(drained)))
    maintenance.drain(
        plane().db, caller(), name, requeue=body["requeue"], rings=plane().dispatcher, on_written=recorder
    )
    return recorder.reply


@blueprint.post("/nodes/<name>/enable")
@operation(
    "Enable a drained or quarantined node",
    permission=Permission.CLUSTER_ADMIN,
    body=NoBodySchema,
    body_optional=True,
    answer=NodeSchema,
)
def enable_node(name: str, body: dict[str, Any]) -> Reply:
    del body
    recorder = ReplyRecorder(lambda _, node: Reply(_NODE.dump(node)))
    maintenance.enable(plane().db, caller(), name, on_written=recorder)
    return recorder.reply


@blueprint.get("/registered-models")
@operation("List base models and fine-tuned models", permission=Permission.VIEW, answer=RegisteredModelsSchema)
def list_models() -> Reply:
    with plane().db.read() as session:
        found = [registered.described(row, caller()) for row in registered.listed(session, caller())]
        return Reply(_MODELS.dump({"models": found}))


@blueprint.post("/registered-models")
@operation(
    "Name a base model",
    permission=Permission.CLUSTER_ADMIN,
    body=RegisterModelSchema,
    answer=RegisteredModelSchema,
    status=201,
)
def register_model(body: dict[str, Any]) -> Reply:
    who = caller()
    recorder = ReplyRecorder(lambda _, row: Reply(_MODEL.dump(registered.described(row, who)), 201))
    name, location, project = body["name"], body["location"], body.get("project")
    registered.register(plane().db, who, name, location, project=project, on_written=recorder)
    return recorder.reply


@blueprint.delete("/registered-models/<name>")
@operation("Remove the name of a base model", permission=Permission.CLUSTER_ADMIN, status=204)
def remove_model(name: str) -> Reply:
    registered.remove(plane().db, caller(), name)
    return Reply(None, 204)


@blueprint.get("/cluster")
@operation("Get the cluster summary", permission=Permission.VIEW, answer=ClusterSchema)
def get_cluster() -> Reply:
    failing = failing_parts(plane().db, backend().settings.broker.url)
    with plane().db.read() as session:
        return Reply(_CLUSTER.dump(cluster_summary.summarize(session, caller(), failing=failing)))
