"""Queues, waiting jobs, nodes, and the cluster summary."""

from typing import Any

from flask import Blueprint

from app.http.context import backend, base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.models.base import utc_now
from app.schemas.cluster import ClusterSchema
from app.schemas.nodes import (
    ChangeNodeSchema,
    DrainedNodeSchema,
    DrainSchema,
    NoBodySchema,
    NodeFitSchema,
    NodeQuerySchema,
    NodeSchema,
)
from app.schemas.queues import (
    ChangeQueueSchema,
    CreateQueueSchema,
    QueueSchema,
    QueuesSchema,
    WaitingJobQuerySchema,
    WaitingJobSchema,
)
from app.security.permissions import Permission
from app.services.jobs import explain_placement
from app.services.nodes import labels, listing, maintenance
from app.services.operations import cluster_summary
from app.services.operations.readiness import failing_parts
from app.services.queues import queues
from app.services.scheduling import planner

blueprint = Blueprint("cluster", __name__)
_QUEUE, _QUEUES, _ENTRY = QueueSchema(), QueuesSchema(), WaitingJobSchema()
_NODE, _DRAINED, _FIT, _CLUSTER = NodeSchema(), DrainedNodeSchema(), NodeFitSchema(), ClusterSchema()


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
    "List waiting jobs in scheduling order",
    permission=Permission.VIEW,
    query=WaitingJobQuerySchema,
    answer=WaitingJobSchema,
    items="entries",
)
def list_waiting_jobs(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        line = queues.line(session, caller(), page_request(query), queue=query.get("queue"), now=utc_now())
    return page_data("entries", _ENTRY, line, query)


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


@blueprint.patch("/nodes/<name>")
@operation("Set the labels of a node", permission=Permission.CLUSTER_ADMIN, body=ChangeNodeSchema, answer=NodeSchema)
def change_node(name: str, body: dict[str, Any]) -> Reply:
    return Reply(_NODE.dump(labels.replace(plane().db, caller(), name, body["labels"])))


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


@blueprint.get("/cluster")
@operation("Get the cluster summary", permission=Permission.VIEW, answer=ClusterSchema)
def get_cluster() -> Reply:
    failing = failing_parts(plane().db, backend().settings.broker.url)
    with plane().db.read() as session:
        return Reply(_CLUSTER.dump(cluster_summary.summarize(session, caller(), failing=failing)))
