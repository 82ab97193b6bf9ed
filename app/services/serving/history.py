"""The history of a service: each event is written in the transaction of its change."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.serving.events import ServiceEventType
from app.models import Service, ServiceEvent
from app.models.base import utc_now
from app.services.lifecycle import audit
from app.services.lifecycle.outbox import OutgoingEvent, enqueue_events, shown_time
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

ACTOR = "services"  # the coordinator, where it acts by the rules of a service
ORDERS: Orders = {"created_at": (ServiceEvent.seq,)}


def record(
    session: Session,
    service: Service,
    kind: ServiceEventType,
    *,
    actor: str,
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add an event; the caller has locked the service's row, or is about to write it for the first time."""
    service.event_seq += 1
    session.flush()  # the service's row first: its events refer to it
    event = ServiceEvent(
        id=new_id("evt"),
        service_id=service.id,
        seq=service.event_seq,
        at=utc_now(),
        type=kind,
        actor=actor,
        message=message,
        data=dict(data or {}),
    )
    session.add(event)
    outgoing = OutgoingEvent(event.id, kind, None, lambda: _payload(service, event))
    enqueue_events(session, service.project, [outgoing])


def record_change(session: Session, service: Service, *, actor: str, message: str, data: Mapping[str, Any]) -> None:
    """An event and an audit entry of a changed service, whose row the caller has locked."""
    record(session, service, ServiceEventType.CHANGED, actor=actor, message=message, data=data)
    audit.record(
        session,
        actor=actor,
        action="service.change",
        project=service.project,
        target=service.id,
        message=message,
        data=data,
    )


def events(session: Session, service_id: str, request: PageRequest) -> Page[ServiceEvent]:
    return page_of(session, select(ServiceEvent).where(ServiceEvent.service_id == service_id), ORDERS, request)


def _payload(service: Service, event: ServiceEvent) -> dict[str, Any]:
    """Body of a delivery to a webhook: the event as the API shows it, and its service."""
    names = ("id", "seq", "type", "actor", "message", "data")
    return {
        "event": {**{name: getattr(event, name) for name in names}, "at": shown_time(event.at)},
        "service": {
            "service_id": service.id,
            "project": service.project,
            "name": service.name,
            "status": service.status,
            "revision": service.revision,
        },
    }
