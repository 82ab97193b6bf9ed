"""What a service is read by while it runs: its replicas' jobs, for their metrics and logs, and its newer events."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.lifecycle.states import TERMINAL
from app.models import Job, Replica, Service, ServiceEvent


def live_replicas(session: Session, service_id: str) -> Sequence[Replica]:
    """Those whose jobs have not ended, by number."""
    query = select(Replica).join(Job, Job.id == Replica.job_id).where(Replica.service_id == service_id)
    return session.scalars(query.where(Job.status.not_in(TERMINAL)).order_by(Replica.number)).all()


def job_with_log(session: Session, service: Service, number: int | None) -> Job | None:
    """The job of this replica; without a number the newest that has started, None before there is one.

    Raises NotFound for a number that the service does not have.
    """
    query = select(Job).join(Replica, Replica.job_id == Job.id).where(Replica.service_id == service.id)
    if number is None:
        return session.scalar(query.where(Job.attempt > 0).order_by(Replica.number.desc()).limit(1))
    found = session.scalar(query.where(Replica.number == number))
    if found is None:
        numbers = f"0 to {service.next_number - 1}" if service.next_number else "none yet"
        raise NotFound(f"{service.name} has no replica {number}; its replicas are {numbers}")
    return found


def events_after(session: Session, service_id: str, seq: int, *, limit: int = 500) -> Sequence[ServiceEvent]:
    """The next events, oldest first."""
    query = select(ServiceEvent).where(ServiceEvent.service_id == service_id, ServiceEvent.seq > seq)
    return session.scalars(query.order_by(ServiceEvent.seq).limit(limit)).all()
