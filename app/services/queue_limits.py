"""What a queue's pause and limits do: who may be submitted to it, who may start, and what the others are told."""

import math
from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.domain.errors import QuotaExceeded
from app.domain.job_state import HELD, JobState
from app.domain.planning import held_back
from app.models import Job, Queue, QueueWait

WAITING = (JobState.PENDING, JobState.QUEUED)
# Seconds. Jobs wait from no time to days; 0 stands for whatever is longer.
WAIT_BOUNDS = (1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)
BEYOND = 0
RETRY_FULL_SECONDS = 30


def refuse_when_full(session: Session, queue: Queue) -> None:
    """Raises QuotaExceeded when no more jobs may wait in the queue; the caller adds one in this transaction.

    ``queue`` was read in it.
    """
    if queue.max_waiting_jobs is None:
        return
    name = queue.name
    # Locked until the new job is there: of two that are submitted at once, the second counts the first.
    session.refresh(queue, with_for_update={"key_share": True})
    limit = queue.max_waiting_jobs
    waiting = _count(session, [name], WAITING).get(name, 0)
    if limit is not None and waiting >= limit:
        raise QuotaExceeded(
            f"the queue {name} holds {waiting} waiting jobs of at most {limit} (max_waiting_jobs); submit later, or to "
            "another queue",
            retry_after_seconds=RETRY_FULL_SECONDS,
        )


def rooms(session: Session) -> dict[str, int]:
    """How many more jobs may start from each queue that is paused or limited; the others may start any number."""
    restricted = session.execute(
        select(Queue.name, Queue.is_paused, Queue.max_running_jobs).where(
            Queue.is_paused | Queue.max_running_jobs.is_not(None)
        )
    ).all()
    running = _count(session, [row.name for row in restricted if not row.is_paused], HELD)
    return {
        row.name: 0 if row.is_paused else max(0, row.max_running_jobs - running.get(row.name, 0)) for row in restricted
    }


def open_queues(session: Session, room: Mapping[str, int]) -> list[str]:
    """The queues from which at least one job may start."""
    return [name for name in session.scalars(select(Queue.name).order_by(Queue.name)) if room.get(name, 1) > 0]


def reasons(session: Session, names: Collection[str]) -> dict[str, str]:
    """Queue → why none of its jobs may start now, for those of which that is so.

    Asked when jobs are shown and not stored with them: pausing a queue must not write to everybody who waits in it.
    """
    if not names:
        return {}
    restricted = session.execute(
        select(Queue.name, Queue.is_paused, Queue.max_running_jobs).where(
            Queue.name.in_(names), Queue.is_paused | Queue.max_running_jobs.is_not(None)
        )
    ).all()
    running = _count(session, [row.name for row in restricted if not row.is_paused], HELD)
    said = {
        row.name: held_back(
            row.name, is_paused=row.is_paused, limit=row.max_running_jobs, running=running.get(row.name, 0)
        )
        for row in restricted
    }
    return {name: reason for name, reason in said.items() if reason}


def lock_open(session: Session, name: str) -> bool:
    """Whether one more job may start from the queue, which nobody changes or starts from until the transaction ends."""
    queue = session.get_one(Queue, name, with_for_update={"key_share": True}, populate_existing=True)
    limited = not queue.is_paused and queue.max_running_jobs is not None
    running = _count(session, [name], HELD).get(name, 0) if limited else 0
    return not held_back(name, is_paused=queue.is_paused, limit=queue.max_running_jobs, running=running)


def count_wait(session: Session, job: Job, now: datetime) -> None:
    """Add the job's wait to the histogram of its queue, which the caller has locked."""
    queued = job.queued_at or job.created_at
    # A pause before another try is no wait for devices.
    waited = max(0.0, (now - max(queued, job.not_before_at or queued)).total_seconds())
    bound = next((bound for bound in WAIT_BOUNDS if waited <= bound), BEYOND)
    changed = session.execute(
        update(QueueWait)
        .where(QueueWait.project == job.project, QueueWait.queue == job.queue, QueueWait.up_to_seconds == bound)
        .values(attempts=QueueWait.attempts + 1, waited_seconds=QueueWait.waited_seconds + waited)
        .returning(QueueWait.attempts)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if changed is None:
        session.add(
            QueueWait(project=job.project, queue=job.queue, up_to_seconds=bound, attempts=1, waited_seconds=waited)
        )


def bound_of(up_to_seconds: int) -> float:
    """The upper bound of a row of the histogram."""
    return math.inf if up_to_seconds == BEYOND else float(up_to_seconds)


def _count(session: Session, names: Collection[str], states: Collection[JobState]) -> dict[str, int]:
    if not names:
        return {}
    counts = select(Job.queue, func.count()).where(Job.queue.in_(names), Job.status.in_(states)).group_by(Job.queue)
    return {row[0]: row[1] for row in session.execute(counts)}
