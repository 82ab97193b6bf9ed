"""The OpenAPI document, generated from the operations' declarations, and an HTML page that renders it."""

from importlib import resources

from flask import Blueprint, Response, current_app

from app.http.context import dialect
from app.http.description import description
from app.http.envelope import json_response
from app.http.operation import operation

blueprint = Blueprint("openapi", __name__)


@blueprint.get("/openapi.json")
@operation("Get this OpenAPI document", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))


@blueprint.get("/docs")
@operation("Show this OpenAPI document as a page", permission=None, media="html")
def docs() -> Response:
    page = resources.files("app.api").joinpath("static/docs.html").read_text(encoding="utf-8")
    response = Response(page, mimetype="text/html")
    policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    response.headers["Content-Security-Policy"] = (
        f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return response
