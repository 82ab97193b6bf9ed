"""The task by which a node starts attempts."""

from celery import Task, shared_task

from app.services.requests import wakeups
from config.queues import node_name
from workers.node.spawn_supervisor import start_attempts


@shared_task(bind=True, name=wakeups.RUN, send_events=False)  # Flower shows jobs, not wake-ups
def run(self: Task, *attempts: tuple[str, int]) -> None:
    """Claim each attempt and start its supervisor; from then on the lease keeps the attempt alive, not this message."""
    runtime = self.app.runtime
    # JSON has no tuples.
    pairs = [(job_id, attempt) for job_id, attempt in attempts]
    start_attempts(runtime.settings, runtime.database, pairs, node=node_name(runtime.settings))
