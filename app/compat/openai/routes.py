"""All routes of OpenAI's API, below `/openai/v1` and beside the native ones below `/v1`."""

from flask import Blueprint, Response, current_app

from app.compat.openai import files_routes, models_routes, not_built, uploads_routes
from app.compat.openai.answers import routes as answers
from app.compat.openai.batches import routes as batches
from app.compat.openai.dialect import BASE, PREFIXES
from app.compat.openai.fine_tuning import grader_routes as graders
from app.compat.openai.fine_tuning import permission_routes as permissions
from app.compat.openai.fine_tuning import routes as fine_tuning
from app.http.context import dialect
from app.http.description import description
from app.http.envelope import json_response
from app.http.operation import operation

blueprint = Blueprint("openai", __name__)
_RESOURCES = (
    files_routes.blueprint,
    uploads_routes.blueprint,
    models_routes.blueprint,
    fine_tuning.blueprint,
    graders.blueprint,
    permissions.blueprint,
    batches.blueprint,
    answers.blueprint,
    not_built.blueprint,
)
for _number, _prefix in enumerate(PREFIXES):
    for _each in _RESOURCES:
        _name = _each.name if _number == 0 else f"{_each.name}_{_number}"
        blueprint.register_blueprint(_each, url_prefix=_prefix, name=_name)


@blueprint.get(f"{BASE}/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))
