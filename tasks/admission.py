"""The task that lets a submitted job into the queue."""

from typing import Any

from celery import shared_task

from app.services import admission, dispatch
from app.services.reading import reading_rules


@shared_task(bind=True, name=dispatch.ADMIT)
def admit(self: Any, job_id: str) -> None:
    """Admit the job and wake the planner. A second delivery does nothing; the planner admits what no message told."""
    runtime = self.app.runtime
    if admission.admit(runtime.database, job_id, reading_rules(runtime.settings)):
        runtime.on_admitted(job_id)
