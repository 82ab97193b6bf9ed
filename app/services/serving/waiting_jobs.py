"""Whether jobs wait for devices that replicas without requests hold."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import REPLICA, TYPES
from app.models import Job
from app.services.serving.fleet import FleetMember

WAITS_AT_LEAST = timedelta(seconds=5)  # what is placed at once does not wait
_MOST_READ = 20
_AUTO = "auto"  # device_type of a job that takes what there is


def want_devices_of(session: Session, replicas: Sequence[FleetMember], now: datetime) -> bool:
    """Whether a job of the same queue waits for devices of the same type; one that is a replica never counts."""
    queues = {each.job.queue for each in replicas}
    if not queues:
        return False
    query = (
        select(Job)
        .where(
            Job.status == JobState.QUEUED,
            Job.queue.in_(queues),
            Job.training_type != TYPES[REPLICA],
            Job.queued_at <= now - WAITS_AT_LEAST,
        )
        .order_by(Job.priority.desc(), Job.queued_at)
        .limit(_MOST_READ)
    )
    held = {(each.job.queue, _device_type(each.job)) for each in replicas}
    waiting = {(job.queue, _device_type(job)) for job in session.scalars(query)}
    return any(
        queue == other and (_AUTO in (device, wanted) or device == wanted)
        for queue, device in held
        for other, wanted in waiting
    )


def _device_type(job: Job) -> str:
    return job.document.resource_config.device_type
