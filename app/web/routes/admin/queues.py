"""Queues: creating, pausing and limiting them."""

from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.administration import MOST_JOBS
from app.domain.names import NAME, NAME_RULE
from app.http.context import caller, plane
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.schemas.queries import QueryFlag
from app.schemas.strict_fields import Matching
from app.security.permissions import Permission
from app.services.queues import queues as service
from app.web.admin_frame import admin_page
from app.web.form_fields import FormNumber, FormWhole
from app.web.forms import form
from app.web.pages import done

blueprint = Blueprint("web_admin_queues", __name__)
LIMITS = ("max_running_jobs", "max_waiting_jobs", "weight")


class LimitsFormSchema(RequestSchema):
    """An empty field is no limit."""

    max_running_jobs = FormWhole(1, MOST_JOBS)
    max_waiting_jobs = FormWhole(0, MOST_JOBS)
    weight = FormNumber(0.01, 1000)


class QueueFormSchema(LimitsFormSchema):
    name = Matching(NAME, NAME_RULE, required=True)


class PauseQueueFormSchema(RequestSchema):
    paused = QueryFlag(required=True)


@blueprint.get("/admin/queues")
@operation("List queues", permission=Permission.VIEW, media="html")
def queues() -> Response:
    with plane().db.read() as session:
        found = service.summaries(session, caller())
    return admin_page("admin/queues.html", queues=found)


@blueprint.post("/admin/queues")
@operation("Create a queue", permission=Permission.CLUSTER_ADMIN, media="html", **form(QueueFormSchema))
def create_queue(body: dict[str, Any]) -> Response:
    name = body.pop("name")
    service.create(plane().db, caller(), name, body)
    return done(f"The queue {name} is made.", url_for("web_admin_queues.queues"))


@blueprint.get("/admin/queues/<name>")
@operation("Show the limits of a queue", permission=Permission.VIEW, media="html")
def queue(name: str) -> Response:
    with plane().db.read() as session:
        found = service.summary(session, caller(), name)
    return admin_page("admin/queue.html", summary=found)


@blueprint.post("/admin/queues/<name>")
@operation("Set the limits of a queue", permission=Permission.CLUSTER_ADMIN, media="html", **form(LimitsFormSchema))
def limit_queue(name: str, body: dict[str, Any]) -> Response:
    service.change(plane().db, caller(), name, {limit: body.get(limit) for limit in LIMITS})
    return done("Saved.", url_for("web_admin_queues.queue", name=name))


@blueprint.post("/admin/queues/<name>/pause")
@operation("Pause or resume a queue", permission=Permission.CLUSTER_ADMIN, media="html", **form(PauseQueueFormSchema))
def pause_queue(name: str, body: dict[str, Any]) -> Response:
    service.change(plane().db, caller(), name, {"paused": body["paused"]})
    said = "starts no jobs until it is resumed" if body["paused"] else "starts jobs again"
    return done(f"The queue {name} {said}.", url_for("web_admin_queues.queues"))
