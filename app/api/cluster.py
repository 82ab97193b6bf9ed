"""Queues, the waiting line, and nodes."""

from typing import Any

from flask import Blueprint

from app.api.context import caller, plane
from app.api.operation import operation
from app.api.pagination import page_data, page_request
from app.models.base import utc_now
from app.schemas.nodes import NodeQuerySchema, NodeSchema
from app.schemas.queues import EntrySchema, LineQuerySchema, QueuesSchema
from app.security.permissions import Permission
from app.services import node_lists, queues

blueprint = Blueprint("cluster", __name__)
_QUEUES, _ENTRY, _NODE = QueuesSchema(), EntrySchema(), NodeSchema()


@blueprint.get("/queues")
@operation("List the queues", permission=Permission.VIEW, answer=QueuesSchema)
def list_queues() -> Any:
    with plane().db.read() as session:
        return _QUEUES.dump({"queues": queues.summaries(session, caller())})


@blueprint.get("/queue")
@operation(
    "List the waiting jobs", permission=Permission.VIEW, query=LineQuerySchema, answer=EntrySchema, items="entries"
)  # fmt: skip
def list_line(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        line = queues.line(session, caller(), page_request(query), queue=query.get("queue"), now=utc_now())
    return page_data("entries", _ENTRY, line, query)


@blueprint.get("/nodes")
@operation("List the nodes", permission=Permission.VIEW, query=NodeQuerySchema, answer=NodeSchema, items="nodes")
def list_nodes(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("nodes", _NODE, node_lists.page(session, page_request(query)), query)


@blueprint.get("/nodes/<name>")
@operation("Read a node", permission=Permission.VIEW, answer=NodeSchema)
def get_node(name: str) -> Any:
    with plane().db.read() as session:
        return _NODE.dump(node_lists.find(session, name))
