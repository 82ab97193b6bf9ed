"""Changes of a service's state, with their event and audit entry."""

from sqlalchemy.orm import Session

from app.domain.serving.events import ServiceEventType
from app.domain.serving.states import ServiceState
from app.models import Service
from app.models.base import utc_now
from app.services.lifecycle import audit
from app.services.serving import history


def move(session: Session, service: Service, to: ServiceState, *, actor: str, message: str = "") -> None:
    """Change the state of a service whose row the caller has locked; failures are forgotten."""
    before, service.status = service.status, to
    service.pending_reason, service.failures, service.not_before_at = "", 0, None
    service.above_target_since = None
    if to is ServiceState.ENDED:
        service.ended_at = utc_now()
    service.mark_changed()
    data = {"from": str(before), "to": str(to)}
    history.record(session, service, ServiceEventType.STATUS, actor=actor, message=message or str(to), data=data)
    audit.record(
        session,
        actor=actor,
        action="service.status",
        project=service.project,
        target=service.id,
        message=message,
        data=data,
    )
