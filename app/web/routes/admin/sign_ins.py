"""The sign-ins at the dashboard that the caller may see and end."""

from typing import Any

from flask import Blueprint, Response, url_for

from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.queries import OrderBy
from app.security.permissions import Permission
from app.services.access import web_sessions
from app.services.access.key_names import actor_names
from app.web.admin_frame import admin_page
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done

blueprint = Blueprint("web_admin_sign_ins", __name__)


class SignInListSchema(WebListSchema):
    order_by = OrderBy("created_at")


@blueprint.get("/admin/sign-ins")
@operation("List sign-ins", permission=Permission.MANAGE_KEYS, media="html", query=SignInListSchema)
def sign_ins(query: dict[str, Any]) -> Response:
    lifetime = web_sessions.lifetime(backend().settings)
    with plane().db.read() as session:
        found = listed(web_sessions.page(session, caller(), lifetime, page_request(query)), query)
        names = actor_names(session, caller(), {row.key_id for row in found.items})
    return admin_page("admin/sign_ins.html", sign_ins=found, names=names)


@blueprint.post("/admin/sign-ins/<session_id>/end")
@operation("End a sign-in", permission=Permission.MANAGE_KEYS, media="html", **form())
def end_sign_in(session_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    web_sessions.end_visible(plane().db, caller(), session_id)
    return done("The sign-in has ended.", url_for("web_admin_sign_ins.sign_ins"))
