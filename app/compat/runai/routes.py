"""Routes of tokens, projects and priorities."""

from typing import Any

from flask import Blueprint, Response, current_app

from app.compat.runai import tokens, trainings, workloads
from app.compat.runai.documents.requests import TokenSchema
from app.compat.runai.from_native import project_of
from app.compat.runai.to_native import PRIORITIES
from app.domain.errors import BadSpec
from app.http.auth import wrong_keys_limited
from app.http.context import caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.access import api_keys, projects
from app.services.requests.pagination import PageRequest

blueprint = Blueprint("runai", __name__)
blueprint.register_blueprint(trainings.blueprint)
blueprint.register_blueprint(workloads.blueprint)
_MOST_PROJECTS = 10_000


@blueprint.post("/token")
@operation("Exchange an access key and secret key for a token", permission=None, body=TokenSchema, refuses=(401, 429))
def make_token(body: dict[str, Any]) -> Reply:
    names = ("AppId", "AppSecret") if body["grantType"] == "app_token" else ("clientId", "clientSecret")
    pair = [body.get(name) or "" for name in names]
    missing = next((name for name, value in zip(names, pair, strict=True) if not value), None)
    if missing is not None:
        raise BadSpec(f"is required for grantType {body['grantType']}", field=missing)
    with wrong_keys_limited():
        found = api_keys.of_pair(plane().db, plane().box, *pair)
    expires = {"expiresIn": tokens.LIFETIME_SECONDS, "tokenType": "Bearer"}
    return Reply({"accessToken": tokens.token_for(found.key_id), **expires})


@blueprint.get("/workload-priorities")
@operation("List the priority classes", permission=Permission.VIEW)
def list_priorities() -> Reply:
    found = [{"id": name, "name": name, "value": priority} for name, (priority, _) in PRIORITIES.items()]
    return Reply({"workloadPriorities": found})


@blueprint.get("/org-unit/projects")
@operation("List the projects", permission=Permission.VIEW)
def list_projects() -> Reply:
    with plane().db.read() as session:
        page = projects.page(session, caller(), PageRequest(size=_MOST_PROJECTS, order="name"))
        found = [project_of(each) for each in page.items]
    return Reply({"projects": found})


@blueprint.get("/org-unit/projects/<project_id>")
@operation("Read a project", permission=Permission.VIEW)
def get_project(project_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(project_of(projects.referred(session, caller(), project_id)))


@blueprint.get("/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))
