"""Shares of projects, quotas, and GPU-hours by month."""

from datetime import timedelta
from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.administration import MOST_OF_QUOTA
from app.host.clock import utc_now
from app.http.context import caller, plane
from app.http.csv_tables import CSV, table_of
from app.http.operation import operation
from app.schemas.documents import RequestSchema
from app.security.permissions import Permission
from app.services.access import projects
from app.services.queues import gpu_hours, project_quotas
from app.services.queues.shares import project_shares
from app.web.form_fields import FormNumber, FormWhole
from app.web.forms import form
from app.web.hours_table import hours_table
from app.web.pages import done, is_partial, page, part

blueprint = Blueprint("web_shares", __name__)
_MONTHS = 6
_KINDS = ("gpus", "cpu_slots")
_OF_A_KIND = ("deserved", "limit", "over_quota_weight")


def _whole() -> FormWhole:
    return FormWhole(0, MOST_OF_QUOTA, load_default=None)


def _number(most: float) -> FormNumber:
    return FormNumber(0, most, load_default=None)


class QuotaFormSchema(RequestSchema):
    """The whole quota: a limit that is left empty is removed."""

    gpus_deserved = _whole()
    gpus_limit = _whole()
    gpus_over_quota_weight = _number(1000)
    cpu_slots_deserved = _whole()
    cpu_slots_limit = _whole()
    cpu_slots_over_quota_weight = _number(1000)
    max_running_jobs = _whole()
    max_waiting_jobs = _whole()
    gpu_hours_per_month = _number(1e9)
    storage_gb = _number(1e9)


@blueprint.get("/shares")
@operation("Show shares and quotas", permission=Permission.VIEW, media="html")
def shares() -> Response:
    with plane().db.read() as session:
        found = project_shares(session, caller())
        if is_partial():
            return part("shares/standings.html", shares=found)
        hours = gpu_hours.by_project_and_month(session, caller(), _last_months())
    return page("shares/shares.html", shares=found, hours=hours_table(hours))


@blueprint.get("/shares/gpu-hours.csv")
@operation("Get the GPU-hours as a table", permission=Permission.VIEW, media="text")
def gpu_hours_table() -> Response:
    with plane().db.read() as session:
        found = gpu_hours.by_project_and_month(session, caller(), {"by": gpu_hours.GROUPS})
    response = Response(table_of(found, ("project", "month", "gpu_hours")), mimetype=CSV)
    response.headers["Content-Disposition"] = "attachment; filename=gpu-hours.csv"
    return response


@blueprint.get("/shares/<project>")
@operation("Show the quota of a project", permission=Permission.VIEW, media="html")
def quota(project: str) -> Response:
    with plane().db.read() as session:
        found = projects.visible(session, caller(), project)
        usage = project_quotas.usage(session, found.name)
        hours = gpu_hours.by_project_and_month(session, caller(), {**_last_months(), "project": found.name})
        values: dict[str, Any] = {"project": found.name, "description": found.description, "limits": found.limits}
    return page("shares/quota.html", usage=usage, hours=hours_table(hours), **values)


@blueprint.post("/shares/<project>")
@operation("Set the quota of a project", permission=Permission.CLUSTER_ADMIN, media="html", **form(QuotaFormSchema))
def set_quota(project: str, body: dict[str, Any]) -> Response:
    limits = {kind: {name: body.pop(f"{kind}_{name}") for name in _OF_A_KIND} for kind in _KINDS}
    projects.change(plane().db, caller(), project, {"quota": {**body, **limits}})
    return done(f"The quota of {project} is set.", url_for("web_shares.quota", project=project))


def _last_months() -> dict[str, Any]:
    now = utc_now()
    first = now.replace(day=15) - timedelta(days=30.4 * (_MONTHS - 1))
    return {"by": gpu_hours.GROUPS, "since": f"{first:%Y-%m}", "until": f"{now:%Y-%m}"}
