"""Scripts, styles and images, which browsers keep for good."""

from flask import Blueprint, Response, request

from app.domain.errors import NotFound
from app.http.operation import operation
from app.web.assets import IMMUTABLE, assets
from app.web.assets import version as current_version

blueprint = Blueprint("web_assets", __name__)


@blueprint.get("/static/<version>/<path:name>")
@operation("Get a script, style or image of the dashboard", permission=None, media="bytes")
def asset(version: str, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        raise NotFound("no such file; reload the page")
    packed = found.packed if request.accept_encodings["gzip"] > 0 else None
    response = Response(packed or found.content, mimetype=found.media_type)
    if found.packed is not None:
        response.headers["Vary"] = "Accept-Encoding"
    if packed is not None:
        response.headers["Content-Encoding"] = "gzip"
    # A page of an older process asks under the older hash: it gets what there is, once.
    response.headers["Cache-Control"] = IMMUTABLE if version == current_version() else "no-store"
    return response
