"""The root of the site, from where browsers go to the dashboard."""

from flask import Blueprint, Response, url_for

from app.http.operation import operation

blueprint = Blueprint("web_root", __name__)


@blueprint.get("/")
@operation("Go to the dashboard", permission=None, media="html")
def root() -> Response:
    response = Response(status=302)
    response.headers["Location"] = url_for("web_overview.overview")
    return response
