"""The entry of the admin pages: the first tab that the caller may open."""

from flask import Blueprint, Response, url_for

from app.http.context import caller
from app.http.operation import operation
from app.security.permissions import Permission
from app.web.admin_frame import TABS
from app.web.pages import redirected

blueprint = Blueprint("web_admin", __name__)


@blueprint.get("/admin")
@operation("Open the first of the admin pages", permission=Permission.VIEW, media="html")
def admin() -> Response:
    first = next(endpoint for _, endpoint, permission in TABS if caller().may(permission))
    return redirected(url_for(first))
