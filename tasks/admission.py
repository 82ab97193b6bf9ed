"""The task that admits submitted jobs to the queue."""

from celery import Task, shared_task

from app.services.preflight import admission
from app.services.requests import wakeups
from app.services.requests.storage_access import reading_rules
from tasks.background.preflight import preflight_policy


@shared_task(bind=True, name=wakeups.ADMIT, send_events=False)  # Flower shows jobs, not wake-ups
def admit(self: Task, *job_ids: str) -> None:
    """Admit the jobs, or request their inspection, and wake the component that continues with them.

    Idempotent; the planner admits jobs whose message was lost.
    """
    runtime = self.app.runtime
    settings = runtime.settings
    for job_id in admission.admit_each(
        runtime.database,
        job_ids,
        reading_rules(settings),
        inspection=preflight_policy(settings),
        inventory=runtime.inventory,
    ):
        runtime.on_admitted(job_id)
