"""What of a page has changed: a stream for each visible tab, and one answer for those without a free slot."""

from typing import Any

from flask import Blueprint, Response, g, request
from marshmallow import fields, validate

from app.http.context import backend
from app.http.envelope import json_response
from app.http.operation import operation
from app.http.sse import stream
from app.schemas.documents import RequestSchema
from app.schemas.queries import QueryTexts, QueryWhole
from app.security.permissions import Permission
from app.web.live_stream import changes, feed, followed

blueprint = Blueprint("web_live", __name__)


class LiveQuerySchema(RequestSchema):
    """``after``: the id of the page's last answer; ``made``: else when the page was made, in milliseconds."""

    topic = QueryTexts(fields.String(), required=True)
    after = fields.String(load_default="", validate=validate.Length(max=2000))
    made = QueryWhole(0, 10**14)


@blueprint.get("/live")
@operation("Follow what a page shows", permission=Permission.VIEW, query=LiveQuerySchema, media="events")
def live(query: dict[str, Any]) -> Response:
    page = followed(query, request.headers.get("Last-Event-ID", "").strip()[:2000])
    return stream(feed(page), slots=backend().viewers)


@blueprint.get("/live/marks")
@operation("Ask what of a page has changed", permission=Permission.VIEW, query=LiveQuerySchema)
def marks(query: dict[str, Any]) -> Response:
    backend().polls.note(g.signed_in.session_id)
    return json_response(changes(followed(query)))
