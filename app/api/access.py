"""API keys and projects."""

from typing import Any

from flask import Blueprint

from app.api.context import base_path, caller, plane
from app.api.envelope import Reply
from app.api.idempotency import Answering
from app.api.operation import operation
from app.api.pagination import page_data, page_request
from app.schemas.keys import CreateKeySchema, KeyQuerySchema, KeySchema, NewKeySchema
from app.schemas.projects import ProjectQuerySchema, ProjectSchema
from app.security.permissions import Permission, Role
from app.services import keys, projects
from app.services.keys import WantedKey

blueprint = Blueprint("access", __name__)
_KEY, _NEW_KEY, _PROJECT = KeySchema(), NewKeySchema(), ProjectSchema()


@blueprint.get("/keys")
@operation("List the API keys", permission=Permission.MANAGE_KEYS, query=KeyQuerySchema, answer=KeySchema, items="keys")
def list_keys(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("keys", _KEY, keys.page(session, caller(), page_request(query)), query)


@blueprint.post("/keys")
@operation(
    "Make an API key", permission=Permission.MANAGE_KEYS, body=CreateKeySchema, answer=NewKeySchema, status=201
)  # fmt: skip
def create_key(body: dict[str, Any]) -> Reply:
    wanted = WantedKey(**{**body, "role": Role(body["role"])})
    base = base_path()
    answering = Answering(
        lambda _, new: Reply(_NEW_KEY.dump(new), 201, location=f"{base}/keys/{new.row.id}"), sealed=True
    )
    keys.create_for(plane().db, plane().box, caller(), wanted, remember=answering)
    return answering.reply


@blueprint.delete("/keys/<key_id>")
@operation("Revoke an API key", permission=Permission.MANAGE_KEYS, status=204)
def revoke_key(key_id: str) -> Reply:
    keys.revoke(plane().db, caller(), key_id)
    return Reply(None, 204)


@blueprint.get("/projects")
@operation(
    "List the projects", permission=Permission.VIEW, query=ProjectQuerySchema, answer=ProjectSchema, items="projects"
)  # fmt: skip
def list_projects(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("projects", _PROJECT, projects.page(session, caller(), page_request(query)), query)


@blueprint.get("/projects/<name>")
@operation("Read a project", permission=Permission.VIEW, answer=ProjectSchema)
def get_project(name: str) -> Any:
    with plane().db.read() as session:
        return _PROJECT.dump(projects.visible(session, caller(), name))
