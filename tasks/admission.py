"""The task that lets a submitted job into the queue."""

from typing import Any

from celery import shared_task

from app.services import admission, dispatch
from app.services.reading import reading_rules
from tasks.inspecting import looking_of


@shared_task(bind=True, name=dispatch.ADMIT, send_events=False)  # Flower shows jobs, not wake-ups
def admit(self: Any, job_id: str) -> None:
    """Admit the job, or ask for its inspection, and wake who goes on with it.

    A second delivery does nothing; the planner admits what no message told.
    """
    runtime = self.app.runtime
    settings = runtime.settings
    if admission.admit(runtime.database, job_id, reading_rules(settings), looking=looking_of(settings)):
        runtime.on_admitted(job_id)
