"""The OpenAPI document, generated from the operations' declarations, and an HTML page that renders it."""

import base64
import hashlib
from functools import cache
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
    page, policy = _page()
    response = Response(page, mimetype="text/html")
    response.headers["Content-Security-Policy"] = policy
    return response


@cache
def _page() -> tuple[str, str]:
    """The page, and its policy: nothing runs or applies but the one script and the one style sheet in it."""
    page = resources.files("app.api").joinpath("static/docs.html").read_text(encoding="utf-8")
    script, style = (_hash_of(page, tag) for tag in ("script", "style"))
    policy = f"default-src 'none'; connect-src 'self'; style-src {style}; script-src {script}"
    return page, f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _hash_of(page: str, tag: str) -> str:
    """The source expression of an element's text; see Content Security Policy Level 3, section 2.3.1."""
    text = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
