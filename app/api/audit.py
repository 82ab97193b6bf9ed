"""The audit log."""

from typing import Any

from flask import Blueprint

from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.http.pagination import page_data, page_request
from app.schemas.audit import AuditEntrySchema, AuditQuerySchema
from app.security.permissions import Permission
from app.services.access import audit_log

blueprint = Blueprint("audit", __name__)
_ENTRY = AuditEntrySchema()


@blueprint.get("/audit")
@operation(
    "List audit log entries",
    permission=Permission.VIEW_AUDIT,
    query=AuditQuerySchema,
    answer=AuditEntrySchema,
    items="entries",
)
def list_entries(query: dict[str, Any]) -> dict[str, Any]:
    with plane().db.read() as session:
        return page_data("entries", _ENTRY, audit_log.page(session, caller(), query, page_request(query)), query)


@blueprint.get("/audit/<entry_id>")
@operation("Get an audit log entry", permission=Permission.VIEW_AUDIT, answer=AuditEntrySchema)
def get_entry(entry_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(_ENTRY.dump(audit_log.find(session, caller(), entry_id)))
