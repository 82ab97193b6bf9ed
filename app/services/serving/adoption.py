"""Automatic services outlive the API key that asked first: a key that asks later takes its place once it has ended."""

from sqlalchemy import ColumnElement, literal, or_, select
from sqlalchemy.orm import Session

from app.models import Service
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.access import api_keys
from app.services.requests.control_plane import ControlPlane
from app.services.serving import history, lookup


def adopt(plane: ControlPlane, caller: Caller, service_id: str) -> None:
    """Submit replicas of this service in the caller's name if it is automatic and its own key has ended.

    The permission to ask is enough: the caller's first request would have made the same service.
    """
    with plane.db.read() as session:
        if not _is_orphaned(session, caller, service_id):
            return
    with plane.db.write() as session:
        service = lookup.locked(session, service_id)
        if _is_orphaned(session, caller, service_id):
            _write(session, caller, service)


def _is_orphaned(session: Session, caller: Caller, service_id: str) -> bool:
    query = select(Service.id).where(
        Service.id == service_id,
        Service.is_automatic,
        Service.ended_at.is_(None),
        Service.submits_as != caller.key_id,
        ~_may_submit(Service.submits_as.expression),
        _may_submit(literal(caller.key_id)),
    )
    return session.scalar(query) is not None


def _may_submit(key_id: ColumnElement[str]) -> ColumnElement[bool]:
    return or_(key_id == api_keys.CLI_ACTOR, api_keys.is_good(key_id, literal(utc_now())))


def _write(session: Session, caller: Caller, service: Service) -> None:
    before, service.submits_as = service.submits_as, caller.key_id
    if not service.failures:
        service.pending_reason = ""  # it was that of the key
    service.mark_changed()
    message = f"the API key {before} has ended; replicas run in the name of {caller.key_id}, which asked for its model"
    data = {"submits_as": caller.key_id}
    history.record_change(session, service, actor=caller.actor, message=message, data=data)
