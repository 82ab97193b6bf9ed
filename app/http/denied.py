"""Writes denied requests to the audit log, with details that only the operator may see."""

from flask import g, request

from app.domain.errors import CredentialsInvalid, Forbidden, NotYours, TrainyardError, Unauthenticated
from app.domain.spec.locations.hosts import holder_of
from app.http.context import backend
from app.security.permissions import Caller
from app.services.access import denied_requests
from app.services.access.denied_requests import Denial

DENIED = (Unauthenticated, Forbidden, NotYours)
ANONYMOUS = "anonymous"


def note(error: TrainyardError) -> None:
    """Record a denied request. Entries that reveal another project's objects are visible to super admins only."""
    caller: Caller | None = g.get("caller")
    actor, project = (caller.actor, caller.project) if caller is not None else (ANONYMOUS, None)
    if isinstance(error, CredentialsInvalid) and error.key_id:
        actor, project = error.key_id, error.project
    if isinstance(error, NotYours):
        project = None
    denial = Denial(
        actor=actor,
        project=project,
        target=f"{request.method} {request.path}",
        message=error.message,
        data={"code": error.code, "foreign": True} if isinstance(error, NotYours) else {"code": error.code},
    )
    here = backend()
    source = actor if actor != ANONYMOUS else holder_of(request.remote_addr or ANONYMOUS)
    denied_requests.note(here.plane.db, here.denials, source, denial)
