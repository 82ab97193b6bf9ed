"""Routes of models: those that an administrator has named, and fine-tuned ones."""

from flask import Blueprint

from app.compat.openai.bodies import listed
from app.compat.openai.files_schemas import DeletedSchema, ModelSchema, ModelsSchema
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.model_registry import fine_tunes, objects

blueprint = Blueprint("openai_models", __name__)


@blueprint.get("/models")
@operation("List the models that may be used", permission=Permission.LIST_MODELS, answer=ModelsSchema)
def list_models() -> Reply:
    with plane().db.read() as session:
        return Reply(listed(objects.model_objects(session, caller())))


# Names of models may contain slashes.
@blueprint.get("/models/<path:model>")
@operation("Get a model", permission=Permission.LIST_MODELS, answer=ModelSchema)
def get_model(model: str) -> Reply:
    with plane().db.read() as session:
        return Reply(objects.model_object(session, caller(), model))


@blueprint.delete("/models/<path:model>")
@operation("Delete a fine-tuned model", permission=Permission.MANAGE, answer=DeletedSchema)
def delete_model(model: str) -> Reply:
    fine_tunes.delete(plane().db, caller(), model)
    return Reply({"id": model, "object": "model", "deleted": True})
