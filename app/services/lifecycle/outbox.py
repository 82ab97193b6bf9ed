"""Webhook outbox: enqueues deliveries of an event in the event's own transaction.

Every transition of a job passes here, also in supervisors: without webhooks it costs no extra statement, and nothing
that uses HTTP or decrypts secrets is imported.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ColumnElement, exists, literal_column, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.domain.ids import new_id
from app.domain.webhooks import wants
from app.models import Job, JobEvent, Webhook, WebhookDelivery

# Column for the statement that numbers the job's event: whether any webhook subscribes. Literal SQL, because for SQLite
# SQLAlchemy omits table names in RETURNING, and both tables have a column ``project``.
HAS_WEBHOOKS: ColumnElement[bool] = literal_column(
    "EXISTS (SELECT 1 FROM webhook WHERE webhook.project = job.project AND webhook.is_active)", Boolean
).label("has_webhooks")


@dataclass(frozen=True)
class OutgoingEvent:
    """An event of anything; ``to_status`` None: it is no state of jobs, which subscriptions name."""

    event_id: str
    kind: str
    to_status: str | None
    payload: Callable[[], dict[str, Any]]


def has_active_webhook(project: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Condition: the project has an active webhook."""
    return exists().where(Webhook.project == project, Webhook.is_active)


def with_webhooks(session: Session, projects: Collection[str]) -> set[str]:
    """The projects that have an active webhook."""
    return set(session.scalars(select(Webhook.project).where(Webhook.project.in_(projects), Webhook.is_active)))


def enqueue(session: Session, job: Job, event: JobEvent) -> None:
    """As `enqueue_events`, for one event of a job."""
    outgoing = OutgoingEvent(event.id, event.type, event.to_status, lambda: payload_of(job, event))
    enqueue_events(session, job.project, [outgoing])


def enqueue_events(session: Session, project: str, events: Iterable[OutgoingEvent]) -> None:
    """Add a delivery of each event for each webhook of the project that subscribes to it, in the caller's transaction.

    The project's webhooks are read once for all events.
    """
    # Locked against deletion before our commit, which would violate the deliveries' foreign key.
    hooks = session.execute(
        select(Webhook.id, Webhook.event_types)
        .where(Webhook.project == project, Webhook.is_active)
        .with_for_update(read=True, key_share=True)
    ).all()
    for event in events if hooks else ():
        wanting = [hook.id for hook in hooks if wants(hook.event_types, event.kind, event.to_status)]
        payload = event.payload() if wanting else {}
        session.add_all(
            WebhookDelivery(
                id=new_id("dlv"), webhook_id=hook_id, event_id=event.event_id, event_type=event.kind, payload=payload
            )
            for hook_id in wanting
        )


def shown_time(at: datetime) -> str:
    """As the API shows times."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def payload_of(job: Job, event: JobEvent) -> dict[str, Any]:
    """Body of a delivery: the event as the API shows it, and its job."""
    return {
        "event": {
            "id": event.id,
            "seq": event.seq,
            "at": shown_time(event.at),
            "type": event.type,
            "from_status": event.from_status,
            "to_status": event.to_status,
            "actor": event.actor,
            "reason": event.reason,
            "message": event.message,
            "data": event.data,
        },
        "job": {
            "job_id": job.id,
            "project": job.project,
            "name": job.name,
            "labels": job.labels,
            "status": job.status,
            "queue": job.queue,
            "training_type": job.training_type,
            "framework": job.framework,
            "attempt": job.attempt,
        },
    }
