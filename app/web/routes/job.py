"""A job's page: what it is and how far, and the tabs of its rows: events, attempts, checkpoints, document, system."""

import json
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response
from marshmallow import fields, validate

from app.domain.errors import NotFound
from app.domain.lifecycle.comparison import document_differences
from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.http.pagination import next_page_token, page_request
from app.schemas.documents import RequestSchema
from app.schemas.queries import QueryFlag
from app.security.permissions import Permission
from app.services.access.key_names import actor_names
from app.services.attempts import checkpoints as saved_checkpoints
from app.services.evaluations import of_job
from app.services.jobs import details, history, lookup, reports, start_points
from app.services.nodes import listing
from app.services.operations.loss_curves import loss_curve
from app.web import job_timeline
from app.web.job_frame import find_job, head_of, job_page
from app.web.pages import part
from app.web.roles import role_instances
from app.web.sparkline import sparkline

blueprint = Blueprint("web_job", __name__)
_EVENTS, _MOST_ATTEMPTS, _MOST_CHECKPOINTS, _MOST_NODES, _MOST_METRICS = 50, 50, 50, 16, 60
_OF_SYSTEM = ("cpu_percent", "memory_mb", "gpu_utilization", "gpu_memory_mb")


class KnownQuerySchema(RequestSchema):
    """``known``: the actions that the page has buttons for, or the mark of what it shows."""

    known = fields.String(load_default="", validate=validate.Length(max=200))


class HeadQuerySchema(KnownQuerySchema):
    brief = QueryFlag(load_default=False)


class EventsPageSchema(RequestSchema):
    page_token = fields.String(load_default="", validate=validate.Length(max=1024))
    known = fields.String(load_default="", validate=validate.Length(max=200))


@blueprint.get("/jobs/<job_id>")
@operation("Show a job", permission=Permission.VIEW, media="html")
def job(job_id: str) -> Response:
    with plane().db.read() as session:
        row = lookup.find(session, caller(), job_id)
        found = details.viewed(session, row, backend().shared)
        measured = of_job.evaluations_of(session, row)
        parent, begins = _origin(session, row)
        loss_name, losses = loss_curve(session, row, backend().shared)
        children = [lookup.find(session, caller(), each) for each in found.child_job_ids[:20]]
        newest_attempt = history.newest_attempts(session, [row.id]).get(row.id) if found.document.tasks else None
    newest = sorted(row.latest_metrics.items())
    return job_page(
        "job/job.html",
        found,
        "",
        metrics=[(name, value) for name, value in newest if name not in _OF_SYSTEM][:_MOST_METRICS],
        metrics_left_out=max(0, len(newest) - _MOST_METRICS),
        evaluations=measured.evaluations[:20],
        passed=measured.passed,
        children=children,
        parent=parent,
        begins=begins,
        loss=sparkline(loss_name, losses),
        asked_devices=role_instances.asked_devices(found.document),
        instances=role_instances.of_attempt(newest_attempt),
    )


@blueprint.get("/jobs/<job_id>/head")
@operation("Show the state of a job", permission=Permission.VIEW, query=HeadQuerySchema, media="html")
def head(job_id: str, query: dict[str, Any]) -> Response:
    brief: bool = query["brief"]
    with plane().db.read() as session:
        row = lookup.find(session, caller(), job_id)
        found = details.without_outlook(session, [row])[0] if brief else details.viewed(session, row, backend().shared)
    values = head_of(found, brief=brief)
    # The buttons are left alone where they are the same: one may have the focus, or its question is open.
    return part("job/head_part.html", job=found, **values, changed=query["known"] != ",".join(values["offered"]))


@blueprint.get("/jobs/<job_id>/events")
@operation("Show the events of a job", permission=Permission.VIEW, query=EventsPageSchema, media="html")
def events(job_id: str, query: dict[str, Any]) -> Response:
    found, listed = find_job(job_id), {**query, "page_size": _EVENTS, "order_by": "-created_at"}
    with plane().db.read() as session:
        rows = history.page(session, job_id, page_request(listed))
        names = actor_names(session, caller(), {each.actor for each in rows.items})
    mark = str(rows.items[0].seq) if rows.items else ""
    if mark and mark == query["known"]:
        return _as_it_is()
    return job_page(
        "job/events.html",
        found,
        "events",
        mark=mark,
        events=rows,
        names=names,
        next_token=next_page_token(rows, listed),
        is_first=not query["page_token"],
    )


@blueprint.get("/jobs/<job_id>/attempts")
@operation("Show the attempts of a job", permission=Permission.VIEW, query=KnownQuerySchema, media="html")
def attempts(job_id: str, query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        row = lookup.find(session, caller(), job_id)
        found = details.without_outlook(session, [row])[0]
        every = history.attempts(session, job_id)
        spent = reports.goodput_so_far(session, row, every)
        saved = saved_checkpoints.list_for(session, job_id)
    now, newest = datetime.now(UTC), every[-_MOST_ATTEMPTS:]
    # The bar of a running attempt grows once a minute: who has a link of it in focus keeps that until then.
    mark = f"{row.status}.{len(every)}.{len(saved)}.{now:%H%M}"
    if mark == query["known"]:
        return _as_it_is()
    return job_page(
        "job/attempts.html",
        found,
        "attempts",
        rows=job_timeline.rows(newest, saved[-_MOST_CHECKPOINTS:], now)[::-1],
        mark=mark,
        attempts=len(every),
        goodput=spent,
    )


@blueprint.get("/jobs/<job_id>/checkpoints")
@operation("Show the checkpoints of a job", permission=Permission.VIEW, query=KnownQuerySchema, media="html")
def checkpoints(job_id: str, query: dict[str, Any]) -> Response:
    found = find_job(job_id)
    with plane().db.read() as session:
        saved = saved_checkpoints.list_for(session, job_id)
    mark = f"{found.job.status}.{len(saved)}.{saved[-1].id if saved else ''}.{found.job.best_checkpoint_id}"
    if mark == query["known"]:
        return _as_it_is()
    best = [each for each in saved[:-_MOST_CHECKPOINTS] if each.is_best]
    shown = [*best, *saved[-_MOST_CHECKPOINTS:]][::-1]
    names = sorted({name for each in shown for name in each.metrics}, key=lambda name: (name != "loss", name))[:4]
    return job_page("job/checkpoints.html", found, "checkpoints", mark=mark, saved=shown, total=len(saved), names=names)


@blueprint.get("/jobs/<job_id>/document")
@operation("Show the document of a job", permission=Permission.VIEW, media="html")
def document(job_id: str) -> Response:
    found = find_job(job_id)
    parent = find_job(found.job.parent_job_id) if found.job.parent_job_id else None
    differences = document_differences([parent.stored, found.stored]) if parent is not None else []
    return job_page(
        "job/document.html",
        found,
        "document",
        parent=parent,
        differences=[(each.field, *map(_as_json, each.values)) for each in differences],
        text=json.dumps(found.stored, indent=2, ensure_ascii=False),
    )


@blueprint.get("/jobs/<job_id>/system")
@operation("Show the devices of a job and what it uses", permission=Permission.VIEW, media="html")
def system(job_id: str) -> Response:
    found = find_job(job_id)
    with plane().db.read() as session:
        newest = history.newest_attempts(session, [job_id]).get(job_id)
        names = newest.node_names[:_MOST_NODES] if newest is not None else []
        nodes = [_node(session, name) for name in names]
    values = found.job.latest_metrics
    return job_page(
        "job/system.html",
        found,
        "system",
        attempt=newest,
        nodes=list(zip(names, nodes, newest.device_indices if newest is not None else (), strict=False)),
        used={name: values[name] for name in _OF_SYSTEM if name in values},
        asked=_given(found.document.resource_config.to_json()),
    )


def _origin(session: Any, row: Any) -> tuple[Any, Any]:  # noqa: ANN401 – rows are of the services
    """The job that this one retries, if it still exists, and the checkpoint that it started from."""
    try:
        parent = lookup.find(session, caller(), row.parent_job_id) if row.parent_job_id else None
    except NotFound:
        parent = None
    return parent, start_points.of_first_attempt(session, row)


def _as_it_is() -> Response:
    """For a part of a page that asks whether it is still right: it stays, with what is open or in focus in it."""
    return Response(status=204)


def _node(session: Any, name: str) -> listing.NodeDetails | None:  # noqa: ANN401 – sessions are of the services
    try:
        return listing.find(session, name)
    except NotFound:
        return None


def _given(section: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _as_json(value)) for name, value in section.items() if value not in (None, "", [], {})]


def _as_json(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
