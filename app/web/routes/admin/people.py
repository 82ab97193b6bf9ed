"""The people who sign in by an identity provider."""

from typing import Any

from flask import Blueprint, Response, url_for

from app.http.context import backend, caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.queries import OrderBy
from app.security.permissions import Permission
from app.services.access import api_keys, web_users
from app.web.admin_frame import admin_page
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done

blueprint = Blueprint("web_admin_people", __name__)


class PeopleListSchema(WebListSchema):
    order_by = OrderBy("last_seen_at", "created_at", "name", default="-last_seen_at")


@blueprint.get("/admin/people")
@operation("List the people", permission=Permission.MANAGE_KEYS, media="html", query=PeopleListSchema)
def people(query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        found = listed(web_users.page(session, caller(), page_request(query)), query)
    return admin_page("admin/people.html", people=found, issuer=backend().settings.oidc.issuer)


@blueprint.post("/admin/people/<key_id>/end")
@operation("End the sign-ins and keys of a person", permission=Permission.MANAGE_KEYS, media="html", **form())
def end(key_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    api_keys.revoke(plane().db, caller(), key_id)
    return done("Their sign-ins and keys have ended.", url_for("web_admin_people.people"))
