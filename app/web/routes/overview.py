"""The first page: what needs a person, what runs, and what waits."""

from typing import Any

from flask import Blueprint, Response

from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.operations import overview as service
from app.web.pages import page, part
from app.web.sparkline import sparkline

blueprint = Blueprint("web_overview", __name__)


@blueprint.get("/")
@operation("Show what needs attention, what runs and what waits", permission=Permission.VIEW, media="html")
def overview() -> Response:
    return page("overview/overview.html", **_values())


@blueprint.get("/overview/part")
@operation("Show the overview's changing part", permission=Permission.VIEW, media="html")
def overview_part() -> Response:
    return part("overview/overview_part.html", **_values())


def _values() -> dict[str, Any]:
    here = backend()
    return {
        "seen": service.overview(plane().db, caller(), here.settings, here.shared),
        "sparkline": sparkline,
        "everywhere": caller().project is None,
    }
