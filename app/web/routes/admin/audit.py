"""The audit log: who did or tried what, with filters, and as a file."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from flask import Blueprint, Response, request

from app.http.context import caller, plane
from app.http.csv_tables import CSV, csv_lines
from app.http.envelope import to_json
from app.http.operation import operation
from app.http.pagination import page_request
from app.schemas.audit import ACTION, AuditEntrySchema
from app.schemas.queries import OrderBy
from app.schemas.strict_fields import Choice, Matching, Text
from app.security.permissions import Permission
from app.services.access import audit_log
from app.services.access.key_names import actor_names
from app.services.lifecycle.audit import AuditOutcome
from app.web.admin_frame import admin_page, pretty
from app.web.form_fields import FormMoment
from app.web.lists import WebListSchema, listed

blueprint = Blueprint("web_admin_audit", __name__)
_ENTRY = AuditEntrySchema()
OUTCOMES = get_args(AuditOutcome)
FILTERS = ("project", "actor", "action", "target", "outcome", "after", "before")


class AuditFilterSchema(WebListSchema):
    order_by = OrderBy("created_at")
    project = Text(longest=63)
    actor = Text(longest=96)
    action = Matching(ACTION, "must be an action such as key.create, or a noun such as key for all of its actions")
    target = Text(longest=128)
    outcome = Choice(OUTCOMES)
    after = FormMoment()
    before = FormMoment()


class ExportSchema(AuditFilterSchema):
    form = Choice(("csv", "jsonl"), load_default="csv")


@blueprint.get("/admin/audit")
@operation("List audit log entries", permission=Permission.VIEW_AUDIT, media="html", query=AuditFilterSchema)
def entries(query: dict[str, Any]) -> Response:
    with plane().db.read() as session:
        found = listed(audit_log.page(session, caller(), query, page_request(query)), query)
        names = actor_names(session, caller(), {entry.actor for entry in found.items})
    given = {name: request.args.get(name, "") for name in FILTERS}
    chosen = {name: value for name, value in given.items() if value}
    return admin_page("admin/audit.html", entries=found, names=names, given=given, chosen=chosen, outcomes=OUTCOMES)


@blueprint.get("/admin/audit/export")
@operation("Export audit log entries", permission=Permission.VIEW_AUDIT, media="text", query=ExportSchema)
def export(query: dict[str, Any]) -> Response:
    form, rows = query.pop("form"), _every(query)
    media_type, lines = CSV, csv_lines(tuple(_ENTRY.fields), rows)
    if form == "jsonl":
        media_type, lines = "application/jsonl", (f"{to_json(row)}\n" for row in rows)
    response = Response(lines, mimetype=media_type)
    response.headers["Content-Disposition"] = f'attachment; filename="audit.{form}"'
    return response


@blueprint.get("/admin/audit/<entry_id>")
@operation("Show an audit log entry", permission=Permission.VIEW_AUDIT, media="html")
def entry(entry_id: str) -> Response:
    with plane().db.read() as session:
        found = audit_log.find(session, caller(), entry_id)
        names = actor_names(session, caller(), {found.actor})
    return admin_page("admin/audit_entry.html", entry=found, names=names, data=pretty(found.data))


def _every(filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All entries, the oldest first. The first is read before the answer begins, so that failures are errors of it."""
    db, who = plane().db, caller()
    batches = audit_log.batches(db, who, filters)
    first = next(batches)

    def rows() -> Iterator[dict[str, Any]]:
        yield from _ENTRY.dump(first, many=True)
        for batch in batches:
            yield from _ENTRY.dump(batch, many=True)

    return rows()
