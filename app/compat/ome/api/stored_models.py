"""Routes of base models: the models that training jobs of a namespace start from, by name."""

from typing import Any

from flask import Blueprint, Response

from app.compat.ome import models
from app.compat.ome.api import patches
from app.compat.ome.api.answers import object_reply
from app.compat.ome.api.bodies import ObjectBody, PatchBody
from app.compat.ome.api.queries import ObjectQuerySchema, WatchQuerySchema, WriteQuerySchema
from app.compat.ome.api.sources import AuditActions
from app.compat.ome.api.stored_objects import StoredKind
from app.compat.ome.dialect import BASE
from app.compat.ome.manifests import BaseModelSchema, ChangeSchema
from app.http.envelope import Reply
from app.http.operation import operation
from app.security.permissions import Permission
from app.services import kubernetes_objects

blueprint = Blueprint("models", __name__)
_OBJECT = BaseModelSchema()
_READER = ObjectBody(_OBJECT)
_MODELS = f"{BASE}/namespaces/<namespace>/basemodels"
_MODEL = f"{_MODELS}/<model_name>"
Query = dict[str, Any]
MODELS = StoredKind(
    kind="BaseModel",
    store=kubernetes_objects.BASE_MODELS,
    schema=_OBJECT,
    check=models.check,
    audit_actions=AuditActions(("base_model.delete",), ("base_model.change",)),
)


@blueprint.get(_MODELS)
@operation(
    "List or watch the base models of a namespace", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)
def list_models(namespace: str, query: Query) -> Reply | Response:
    return MODELS.list_or_watch(namespace, query)


@blueprint.post(_MODELS)
@operation(
    "Create a base model",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=BaseModelSchema,
    reader=_READER,
    status=201,
)
def create_model(namespace: str, query: Query, body: dict[str, Any]) -> Reply:
    return MODELS.create(namespace, body, query)


@blueprint.get(_MODEL)
@operation("Read a base model", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_model(namespace: str, model_name: str, query: Query) -> Reply:  # noqa: ARG001
    return object_reply(MODELS.read(namespace, model_name))


@blueprint.put(_MODEL)
@operation(
    "Replace a base model", permission=Permission.MANAGE, query=WriteQuerySchema, body=BaseModelSchema, reader=_READER
)
def replace_model(namespace: str, model_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return MODELS.replace(namespace, model_name, body, query)


@blueprint.patch(_MODEL)
@operation(
    "Change a base model by a patch, or apply it",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=ChangeSchema,
    reader=PatchBody(),
    takes=patches.MERGE,
    also={201: ChangeSchema},
)
def patch_model(namespace: str, model_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return MODELS.patch(namespace, model_name, body, query)


@blueprint.delete(_MODEL)
@operation("Delete a base model", permission=Permission.MANAGE, query=WriteQuerySchema)
def delete_model(namespace: str, model_name: str, query: Query) -> Reply:
    return MODELS.delete(namespace, model_name, query)
