"""Finding one service, by its id or by its name."""

import re

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.models import Service
from app.security.permissions import Caller

SERVICE_ID = re.compile(r"service-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def service(session: Session, caller: Caller, handle: str) -> Service:
    """The service with this id, or the live one with this name in the caller's project.

    Raises the same NotFound for one that does not exist and one that is not visible to the caller.
    """
    missing = f"no service {handle[:64]}; list them with GET /v1/services"
    found = session.get(Service, handle) if SERVICE_ID.fullmatch(handle) else None
    found = found or live(session, caller.home_project, handle)
    if found is None:
        raise NotFound(missing)
    caller.require_sight(found.project, missing)
    return found


def live(session: Session, project: str, name: str) -> Service | None:
    """The project's service of this name that has not ended."""
    return session.scalar(
        select(Service).where(Service.project == project, Service.name == name, Service.ended_at.is_(None))
    )


def current(session: Session, service_id: str) -> Service | None:
    """The service as it is now, for who has been let see it; None: it was deleted."""
    return session.get(Service, service_id, populate_existing=True)


def newest(session: Session, project: str, name: str) -> Service | None:
    """The project's newest service of this name, also if it has ended."""
    if not name.isprintable():
        return None
    named = select(Service).where(Service.project == project, Service.name == name)
    return session.scalar(named.order_by(Service.created_at.desc(), Service.id.desc()).limit(1))


def for_change(session: Session, caller: Caller, handle: str) -> Service:
    """The service with its row locked until the transaction ends; raises NotFound as `service`."""
    return locked(session, service(session, caller, handle).id)


def locked(session: Session, service_id: str) -> Service:
    """The service with its row locked until the transaction ends (on SQLite the write transaction is the lock)."""
    found = session.get(Service, service_id, with_for_update=True, populate_existing=True)
    if found is None:
        raise NotFound(f"no service {service_id}")
    return found
