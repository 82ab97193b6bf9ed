"""API keys, people of an identity provider, and projects."""

from typing import Any

from flask import Blueprint

from app.http.context import base_path, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.schemas.keys import ChangeKeySchema, CreateKeySchema, KeyQuerySchema, KeySchema, NewKeySchema, RotateKeySchema
from app.schemas.projects import (
    ChangeEgressSchema,
    ChangeProjectSchema,
    CreateProjectSchema,
    ProjectQuerySchema,
    ProjectSchema,
    UsageSchema,
)
from app.schemas.users import PersonSchema, UserQuerySchema
from app.security.permissions import Permission, Role
from app.services.access import api_keys, projects, web_users
from app.services.access.api_keys import WantedKey
from app.services.queues import project_quotas

blueprint = Blueprint("access", __name__)
_KEY, _NEW_KEY, _PROJECT, _USAGE = KeySchema(), NewKeySchema(), ProjectSchema(), UsageSchema()
_USER = PersonSchema()


@blueprint.get("/keys")
@operation("List API keys", permission=Permission.MANAGE_KEYS, query=KeyQuerySchema, answer=KeySchema, items="keys")
def list_keys(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("keys", _KEY, api_keys.page(session, caller(), page_request(query)), query)


@blueprint.post("/keys")
@operation(
    "Create an API key", permission=Permission.MANAGE_KEYS, body=CreateKeySchema, answer=NewKeySchema, status=201
)
def create_key(body: dict[str, Any]) -> Reply:
    wanted = WantedKey(**{**body, "role": Role(body["role"])})
    recorder = _key_reply_recorder()
    api_keys.create_for(plane().db, plane().box, caller(), wanted, on_written=recorder)
    return recorder.reply


@blueprint.get("/users")
@operation(
    "List the people of the identity provider",
    permission=Permission.MANAGE_KEYS,
    query=UserQuerySchema,
    answer=PersonSchema,
    items="users",
)
def list_users(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("users", _USER, web_users.page(session, caller(), page_request(query)), query)


@blueprint.get("/keys/<key_id>")
@operation("Get an API key, without its secret", permission=Permission.MANAGE_KEYS, answer=KeySchema)
def get_key(key_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_KEY.dump(api_keys.find(session, caller(), key_id)))


@blueprint.patch("/keys/<key_id>")
@operation("Change the limits of an API key", permission=Permission.MANAGE_KEYS, body=ChangeKeySchema, answer=KeySchema)
def change_key(key_id: str, body: dict[str, Any]) -> Reply:
    return Reply(_KEY.dump(api_keys.change(plane().db, caller(), key_id, body)))


@blueprint.post("/keys/<key_id>/rotate")
@operation(
    "Rotate an API key",
    permission=Permission.MANAGE_KEYS,
    body=RotateKeySchema,
    body_optional=True,
    answer=NewKeySchema,
    status=201,
)
def rotate_key(key_id: str, body: dict[str, Any]) -> Reply:
    recorder = _key_reply_recorder()
    api_keys.rotate(plane().db, plane().box, caller(), key_id, grace_seconds=body["grace_seconds"], on_written=recorder)
    return recorder.reply


@blueprint.delete("/keys/<key_id>")
@operation("Revoke an API key", permission=Permission.MANAGE_KEYS, status=204)
def revoke_key(key_id: str) -> Reply:
    api_keys.revoke(plane().db, caller(), key_id)
    return Reply(None, 204)


@blueprint.get("/projects")
@operation(
    "List projects", permission=Permission.VIEW, query=ProjectQuerySchema, answer=ProjectSchema, items="projects"
)
def list_projects(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("projects", _PROJECT, projects.page(session, caller(), page_request(query)), query)


@blueprint.get("/projects/<name>")
@operation("Get a project", permission=Permission.VIEW, answer=ProjectSchema)
def get_project(name: str) -> Reply:
    with plane().db.read() as session:
        project = projects.visible(session, caller(), name)
        return Reply({**_PROJECT.dump(project), "usage": _USAGE.dump(project_quotas.usage(session, name))})


@blueprint.post("/projects")
@operation(
    "Create a project", permission=Permission.CLUSTER_ADMIN, body=CreateProjectSchema, answer=ProjectSchema, status=201
)
def create_project(body: dict[str, Any]) -> Reply:
    base = base_path()
    recorder = ReplyRecorder(
        lambda _, project: Reply(_PROJECT.dump(project), 201, location=f"{base}/projects/{project.name}")
    )
    projects.create(plane().db, caller(), **body, on_written=recorder)
    return recorder.reply


@blueprint.patch("/projects/<name>")
@operation("Update a project", permission=Permission.CLUSTER_ADMIN, body=ChangeProjectSchema, answer=ProjectSchema)
def change_project(name: str, body: dict[str, Any]) -> Reply:
    return Reply(_PROJECT.dump(projects.change(plane().db, caller(), name, body)))


@blueprint.post("/projects/<name>/egress")
@operation(
    "Add or remove services that jobs of a project may connect to",
    permission=Permission.CLUSTER_ADMIN,
    body=ChangeEgressSchema,
    body_optional=True,
    answer=ProjectSchema,
)
def change_egress(name: str, body: dict[str, Any]) -> Reply:
    recorder = ReplyRecorder(lambda _, project: Reply(_PROJECT.dump(project)))
    projects.change_egress(plane().db, caller(), name, **body, on_written=recorder)
    return recorder.reply


@blueprint.delete("/projects/<name>")
@operation("Delete a project that has no jobs, with its keys", permission=Permission.CLUSTER_ADMIN, status=204)
def delete_project(name: str) -> Reply:
    projects.delete(plane().db, plane().storage, caller(), name)
    return Reply(None, 204)


def _key_reply_recorder() -> ReplyRecorder:
    base = base_path()
    return ReplyRecorder(
        lambda _, new: Reply(_NEW_KEY.dump(new), 201, location=f"{base}/keys/{new.row.id}"), sealed=True
    )
