"""Nodes: a square per device, and a page for each node with its actions."""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.lifecycle.states import JobState
from app.host.clock import utc_now
from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.documents import RequestSchema
from app.schemas.queries import OrderBy, QueryFlag
from app.schemas.strict_fields import Choice, Text
from app.security.permissions import Permission
from app.services.jobs import explain_placement
from app.services.jobs import listing as jobs
from app.services.nodes import device_grid, device_usage, labels, listing, maintenance, stuck_devices
from app.services.requests.pagination import PageRequest
from app.services.scheduling import planner
from app.web import device_squares, history_lines
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done, is_partial, page, part

blueprint = Blueprint("web_nodes", __name__)
AGGREGATED_ABOVE, _MOST_SQUARES = 200, 1000
_OFFERED_JOBS = 20
# Of the lines of a node: minutes, and how they are called. Samples are kept for a day.
_SPANS = {"1h": (60, "Last hour"), "6h": (360, "Last 6 hours"), "24h": (1440, "Last 24 hours")}


class NodesQuerySchema(WebListSchema):
    order_by = OrderBy("name", "status", "created_at", default="name")
    show = Choice(device_squares.VIEWS, load_default=device_squares.ALLOCATION)


class NodePageQuerySchema(RequestSchema):
    of_form = True
    job = Text(longest=64)
    span = Choice(tuple(_SPANS), load_default="1h")


class DrainFormSchema(RequestSchema):
    requeue = QueryFlag(load_default=False)


class LabelFormSchema(RequestSchema):
    labels = Text(longest=20_000, load_default="")


@blueprint.get("/nodes")
@operation("Show the nodes", permission=Permission.VIEW, query=NodesQuerySchema, media="html")
def nodes(query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        found = device_grid.page(session, caller(), page_request(query))
        states, types = device_grid.by_state(session), device_grid.by_type(session)
        is_aggregated = sum(states.values()) > AGGREGATED_ABOVE
        with_use = query["show"] != device_squares.ALLOCATION
        sums = device_grid.by_node(session, most=_MOST_SQUARES, with_use=with_use) if is_aggregated else []
    shown_nodes = listed(found, query)
    marks = device_squares.marks_of(shown_nodes.items)
    values: dict[str, Any] = {
        "nodes": shown_nodes,
        "states": states,
        "types": types,
        "marks": marks,
        "squares": device_squares,
        "show": query["show"],
        "is_aggregated": is_aggregated,
        "sums": sums,
    }
    return part("nodes/fleet.html", **values) if is_partial() else page("nodes/nodes.html", **values)


@blueprint.get("/nodes/<name>")
@operation("Show a node", permission=Permission.VIEW, query=NodePageQuerySchema, media="html")
def node(name: str, query: dict[str, Any]) -> Response:
    minutes, _ = _SPANS[query["span"]]
    with plane().db.read() as session:
        found = device_grid.find(session, caller(), name)
        samples = device_usage.history(session, name, minutes=minutes)
    values: dict[str, Any] = {
        "seen": found,
        "node": found.details.node,
        "lines": history_lines,
        "samples": samples,
        "now": utc_now(),
        "minutes": minutes,
        "span": query["span"],
        "spans": {each: title for each, (_, title) in _SPANS.items()},
    }
    if is_partial():
        return part("nodes/devices.html", **values)
    return page("nodes/node.html", fit=_fit(name, query.get("job")), waiting=_waiting(), **values)


@blueprint.post("/nodes/<name>/drain")
@operation("Drain a node", permission=Permission.CLUSTER_ADMIN, media="html", **form(DrainFormSchema))
def drain(name: str, body: dict[str, Any]) -> Response:
    drained = maintenance.drain(plane().db, caller(), name, requeue=body["requeue"], rings=plane().dispatcher)
    asked = drained.requeued_jobs
    jobs = f" {asked} {'job saves' if asked == 1 else 'jobs save'} and return to the queue." if asked else ""
    return done(f"{name} gets no new jobs.{jobs}", _page_of(name))


@blueprint.post("/nodes/<name>/enable")
@operation("Enable a node", permission=Permission.CLUSTER_ADMIN, media="html", **form())
def enable(name: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    maintenance.enable(plane().db, caller(), name)
    return done(f"{name} accepts jobs.", _page_of(name))


@blueprint.post("/nodes/<name>/put-back")
@operation("Return devices to service", permission=Permission.CLUSTER_ADMIN, media="html", **form())
def put_back(name: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    count = stuck_devices.put_back_by_hand(plane().db, caller(), name)
    return done(f"{count} {'device is' if count == 1 else 'devices are'} in service again.", _page_of(name))


@blueprint.post("/nodes/<name>/labels")
@operation("Set the labels of a node", permission=Permission.CLUSTER_ADMIN, media="html", **form(LabelFormSchema))
def change_labels(name: str, body: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        of_the_file = listing.find(session, name).node.labels
    words = body["labels"].replace(",", " ").split()
    labels.replace(plane().db, caller(), name, list(dict.fromkeys([*of_the_file, *words])))
    return done(f"The labels of {name} are set.", _page_of(name))


@blueprint.post("/nodes/<name>/remove")
@operation("Remove a lost node", permission=Permission.CLUSTER_ADMIN, media="html", **form())
def remove(name: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    maintenance.remove(plane().db, caller(), name)
    return done(f"{name} is removed.", url_for("web_nodes.nodes"))


def _page_of(name: str) -> str:
    return url_for("web_nodes.node", name=name)


def _fit(name: str, job_id: str | None) -> explain_placement.NodeFit | None:
    if not job_id:
        return None
    with plane().db.read() as session:
        weights = planner.weights_of(backend().settings)
        return explain_placement.why(session, caller(), name, job_id.strip(), weights)


def _waiting() -> Sequence[Any]:
    """Some jobs that wait, to choose one from: the order of service of all of them would take longer than the page."""
    request = PageRequest(size=_OFFERED_JOBS, order="-priority")
    with plane().db.read() as session:
        return jobs.page(session, caller(), {"status": [JobState.QUEUED]}, request, with_outlook=False).items
