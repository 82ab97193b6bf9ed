"""API keys: creating, rotating and revoking them, and what each role may do."""

from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, url_for

from app.domain.administration import DEFAULT_GRACE_SECONDS, MAX_EXPIRES_DAYS, MAX_GRACE_SECONDS, MOST_PER_MINUTE
from app.http.context import caller, plane
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.keys import CreateKeySchema, RotateKeySchema
from app.schemas.queries import OrderBy
from app.security.api_key_format import is_live
from app.security.permissions import PERMISSIONS, PROJECT_ROLES, Permission, Role
from app.services.access import api_keys, person_keys, projects
from app.services.access.api_keys import WantedKey
from app.services.requests.idempotency import not_stored
from app.web.admin_frame import admin_page, shown_once
from app.web.form_fields import FormWhole
from app.web.forms import form
from app.web.lists import WebListSchema, listed
from app.web.pages import done

blueprint = Blueprint("web_admin_keys", __name__)
# How long a rotated key stays valid.
GRACES = (("3600", "an hour"), ("86400", "a day"), ("604800", "a week"), ("0", "not at all: it stops at once"))
MEANINGS = {
    Permission.VIEW: "see jobs, nodes and queues",
    Permission.MANAGE: "submit and control jobs, manage webhooks",
    Permission.EVALUATE: "evaluate models",
    Permission.INFER: "ask models that services answer with",
    Permission.LIST_MODELS: "list models",
    Permission.MANAGE_KEYS: "manage keys of the project, and see and end its sign-ins",
    Permission.VIEW_AUDIT: "read the audit log of the project",
    Permission.CLUSTER_ADMIN: "manage nodes, queues, projects, and everything of every project",
}


class KeyListSchema(WebListSchema):
    order_by = OrderBy("created_at", "name")


class CreateKeyFormSchema(CreateKeySchema):
    expires_days = FormWhole(1, MAX_EXPIRES_DAYS)  # type: ignore[assignment]  # a form has texts
    requests_per_minute = FormWhole(0, MOST_PER_MINUTE)  # type: ignore[assignment]
    tokens_per_minute = FormWhole(0, MOST_PER_MINUTE)  # type: ignore[assignment]


class RotateKeyFormSchema(RotateKeySchema):
    grace_seconds = FormWhole(  # type: ignore[assignment]  # a form has texts
        0, MAX_GRACE_SECONDS, load_default=DEFAULT_GRACE_SECONDS
    )


@blueprint.get("/admin/keys")
@operation("List API keys", permission=Permission.MANAGE_KEYS, media="html", query=KeyListSchema)
def keys(query: dict[str, Any]) -> Response:
    who = caller()
    with plane().db.read() as session:
        found = listed(api_keys.page(session, who, page_request(query)), query)
        known = projects.names(session, who)
    roles = PROJECT_ROLES if who.project is not None or not who.may(Permission.CLUSTER_ADMIN) else tuple(Role)
    return admin_page(
        "admin/keys.html",
        keys=found,
        projects=known,
        roles=roles,
        home=who.home_project,
        permissions=PERMISSIONS,
        meanings=MEANINGS,
        is_live=is_live,
        now=datetime.now(UTC),
    )


@blueprint.post("/admin/keys")
@operation("Create an API key", permission=Permission.MANAGE_KEYS, media="html", **form(CreateKeyFormSchema))
def create_key(body: dict[str, Any]) -> Response:
    role = Role(body["role"])
    project = None if role is Role.SUPER_ADMIN else body.get("project")
    wanted = WantedKey(**{**body, "role": role, "project": project})
    new = api_keys.create_for(plane().db, plane().box, caller(), wanted, on_written=not_stored)
    return shown_once("admin/new_key.html", new=new, title="New key")


@blueprint.get("/admin/keys/<key_id>")
@operation("Show an API key, without its secret", permission=Permission.MANAGE_KEYS, media="html")
def key(key_id: str) -> Response:
    with plane().db.read() as session:
        found = api_keys.find(session, caller(), key_id)
        user = person_keys.of_key(session, found)
    return admin_page("admin/key.html", key=found, user=user, graces=GRACES, is_live=is_live, now=datetime.now(UTC))


@blueprint.post("/admin/keys/<key_id>/rotate")
@operation("Rotate an API key", permission=Permission.MANAGE_KEYS, media="html", **form(RotateKeyFormSchema))
def rotate_key(key_id: str, body: dict[str, Any]) -> Response:
    new = api_keys.rotate(plane().db, plane().box, caller(), key_id, grace_seconds=body["grace_seconds"])
    return shown_once("admin/new_key.html", new=new, title="New key in place of the old one")


@blueprint.post("/admin/keys/<key_id>/revoke")
@operation("Revoke an API key", permission=Permission.MANAGE_KEYS, media="html", **form())
def revoke_key(key_id: str, body: dict[str, Any]) -> Response:  # noqa: ARG001 – it has no fields
    api_keys.revoke(plane().db, caller(), key_id)
    return done("The key is revoked; it and its sign-ins no longer count.", url_for("web_admin_keys.keys"))
