"""Tells webhooks how a batch has ended, in the transaction of its end."""

from typing import Any

from sqlalchemy.orm import Session

from app.domain.batches.events import BatchEventType
from app.domain.ids import new_id
from app.models import Batch
from app.services.lifecycle.outbox import OutgoingEvent, enqueue_events, shown_time

ACTOR = "batches"  # the coordinator, which ends batches


def announce(session: Session, batch: Batch) -> None:
    """Once, by the caller that has ended the batch and holds its row; its files and counts are set."""
    event_id, kind = new_id("evt"), BatchEventType(f"batch.{batch.status}")
    enqueue_events(
        session, batch.project, [OutgoingEvent(event_id, kind, None, lambda: _payload(batch, event_id, kind))]
    )


def _payload(batch: Batch, event_id: str, kind: BatchEventType) -> dict[str, Any]:
    ended_at = batch.ended_at or batch.updated_at
    return {
        "event": {
            "id": event_id,
            "seq": 1,  # it is the only one
            "at": shown_time(ended_at),
            "type": kind,
            "actor": ACTOR,
            "message": _message(batch),
            "data": {},
        },
        "batch": {
            "batch_id": batch.id,
            "project": batch.project,
            "name": batch.id,
            "status": batch.status,
            "endpoint": batch.endpoint,
            "metadata": batch.tags,
            "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
            "input_file_id": batch.input_file_id,
            "output_file_id": batch.output_file_id,
            "error_file_id": batch.error_file_id,
        },
    }


def _message(batch: Batch) -> str:
    if batch.problems:
        return str(batch.problems[0]["message"])
    return f"{batch.completed} of {batch.total} requests were answered"
