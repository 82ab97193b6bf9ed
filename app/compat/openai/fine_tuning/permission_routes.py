"""Routes of the permissions of checkpoints: which other projects may ask a fine-tuned model."""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint

from app.compat.openai.bodies import json_body, listed, seconds
from app.compat.openai.files_schemas import DeletedSchema
from app.compat.openai.fine_tuning.permission_schemas import (
    DESCENDING,
    GrantSchema,
    PermissionsQuerySchema,
    PermissionsSchema,
)
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.model_registry import permissions
from app.services.rows import ModelPermission, Session

blueprint = Blueprint("fine_tuning_permissions", __name__)
OBJECT = "checkpoint.permission"
_PATH = "/fine_tuning/checkpoints/<model>/permissions"


@blueprint.post(_PATH)
@operation(
    "Let other projects ask a fine-tuned model or a checkpoint",
    permission=Permission.CLUSTER_ADMIN,
    answer=PermissionsSchema,
    **json_body(GrantSchema),
)
def grant_permissions(model: str, body: dict[str, Any]) -> Reply:
    answering = ReplyRecorder(_granted)
    permissions.grant(plane().db, caller(), model, body["project_ids"], on_written=answering)
    return answering.reply


@blueprint.get(_PATH)
@operation(
    "List which other projects may ask a fine-tuned model or a checkpoint",
    permission=Permission.CLUSTER_ADMIN,
    query=PermissionsQuerySchema,
    answer=PermissionsSchema,
)
def list_permissions(model: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        found, has_more = permissions.page(
            session,
            caller(),
            model,
            size=query["limit"],
            after=query.get("after"),
            project=query.get("project_id"),
            descending=query.get("order", DESCENDING) == DESCENDING,
        )
        return Reply(listed([_permission_of(each) for each in found], has_more))


@blueprint.delete(f"{_PATH}/<permission_id>")
@operation("Take a permission back", permission=Permission.CLUSTER_ADMIN, answer=DeletedSchema)
def revoke_permission(model: str, permission_id: str) -> Reply:
    permissions.revoke(plane().db, caller(), model, permission_id)
    return Reply({"id": permission_id, "object": OBJECT, "deleted": True})


def _granted(_session: Session, found: Sequence[ModelPermission]) -> Reply:
    return Reply(listed([_permission_of(each) for each in found]))


def _permission_of(permission: ModelPermission) -> dict[str, Any]:
    return {
        "id": permission.id,
        "object": OBJECT,
        "created_at": seconds(permission.created_at),
        "project_id": permission.project,
    }
