"""Puts each event on its way to the webhooks that want it, in the event's own transaction.

Every transition of a job passes here, also in supervisors: without webhooks it costs no statement of its own, and
nothing that speaks HTTP or opens secrets is imported.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Boolean, ColumnElement, exists, literal_column, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.domain.ids import new_id
from app.domain.webhooks import wants
from app.models import Job, JobEvent, Webhook, WebhookDelivery

# A column for the statement that counts the job's event: whether anybody is to be told of it. Written out, because
# for SQLite SQLAlchemy leaves the names of tables out of RETURNING, where both tables have a project.
HAS_WEBHOOKS: ColumnElement[bool] = literal_column(
    "EXISTS (SELECT 1 FROM webhook WHERE webhook.project = job.project AND webhook.is_active)", Boolean
).label("has_webhooks")


def any_told(project: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """The same for a statement that names the project."""
    return exists().where(Webhook.project == project, Webhook.is_active)


def with_webhooks(session: Session, projects: Collection[str]) -> set[str]:
    """Those of them of which somebody is told."""
    return set(session.scalars(select(Webhook.project).where(Webhook.project.in_(projects), Webhook.is_active)))


def enqueue(session: Session, job: Job, event: JobEvent) -> None:
    """A delivery for each webhook of the job's project that wants the event; joins the caller's transaction."""
    # Locked against being deleted before our commit, which the deliveries' foreign key would not let pass.
    hooks = session.execute(
        select(Webhook.id, Webhook.event_types)
        .where(Webhook.project == job.project, Webhook.is_active)
        .with_for_update(read=True, key_share=True)
    )
    payload: dict[str, Any] = {}
    for hook in hooks:
        if wants(hook.event_types, event.type, event.to_status):
            payload = payload or payload_of(job, event)
            session.add(
                WebhookDelivery(
                    id=new_id("dlv"), webhook_id=hook.id, event_id=event.id, event_type=event.type, payload=payload
                )
            )


def payload_of(job: Job, event: JobEvent) -> dict[str, Any]:
    """What a receiver gets: the event as the API shows it, and the job it is about."""
    return {
        "event": {
            "id": event.id,
            "seq": event.seq,
            "at": event.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
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
