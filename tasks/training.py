"""The task that a node takes up an attempt by."""

from typing import Any

from celery import shared_task

from app.services import dispatch
from config.queues import node_name
from workers.supervisor import start_attempt


@shared_task(bind=True, name=dispatch.RUN, send_events=False)  # Flower shows jobs, not wake-ups
def run(self: Any, job_id: str, attempt: int) -> None:
    """Claim the attempt and start its supervisor; from there on its lease keeps it alive, not this message."""
    runtime = self.app.runtime
    start_attempt(runtime.settings, runtime.database, job_id, attempt, node=node_name(runtime.settings))
