"""Queue limits and pauses: checks for submission and start, and pending reasons."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.domain.errors import QuotaExceeded
from app.domain.lifecycle.states import HELD, JobState
from app.domain.scheduling.planner import held_back
from app.models import Job, Queue, QueueWait

WAITING = (JobState.PENDING, JobState.QUEUED)
# Histogram bounds in seconds, from nothing to days; 0 stands for +Inf.
WAIT_BOUNDS = (1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)
BEYOND = 0
RETRY_FULL_SECONDS = 30


def refuse_when_full(session: Session, queue: Queue) -> None:
    """Raises QuotaExceeded when no more jobs may wait in the queue.

    The caller has read ``queue`` in this transaction, and adds a job in it.
    """
    if queue.max_waiting_jobs is None:
        return
    name = queue.name
    # Locked until the commit: of two concurrent submissions the second counts the first.
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
    """Number of jobs that may still start per paused or limited queue; other queues are unlimited."""
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
    """Queue → why none of its jobs may start now, for queues where that is so.

    Computed when jobs are shown, not stored with them: pausing a queue must not update all of its pending jobs.
    """
    if not names:
        return {}
    restricted = session.execute(
        select(Queue.name, Queue.is_paused, Queue.max_running_jobs).where(
            Queue.name.in_(names), Queue.is_paused | Queue.max_running_jobs.is_not(None)
        )
    ).all()
    running = _count(session, [row.name for row in restricted if not row.is_paused], HELD)
    found = {
        row.name: held_back(
            row.name, is_paused=row.is_paused, limit=row.max_running_jobs, running=running.get(row.name, 0)
        )
        for row in restricted
    }
    return {name: reason for name, reason in found.items() if reason}


def is_open(session: Session, queue: Queue) -> bool:
    """Whether one more job may start from the queue, which the caller has locked."""
    name, limited = queue.name, not queue.is_paused and queue.max_running_jobs is not None
    running = _count(session, [name], HELD).get(name, 0) if limited else 0
    return not held_back(name, is_paused=queue.is_paused, limit=queue.max_running_jobs, running=running)


@dataclass(frozen=True)
class Wait:
    """How long a job waited for devices before it was placed."""

    project: str
    queue: str
    seconds: float


def wait_of(job: Job, now: datetime) -> Wait:
    queued = job.queued_at or job.created_at
    # Backoff before a retry does not count as waiting for devices.
    seconds = max(0.0, (now - max(queued, job.not_before_at or queued)).total_seconds())
    return Wait(job.project, job.queue, seconds)


def count_waits(session: Session, waits: Iterable[Wait]) -> None:
    """Add waits to the histograms of their queues, which the caller has locked."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for wait in waits:
        bound = next((bound for bound in WAIT_BOUNDS if wait.seconds <= bound), BEYOND)
        found.setdefault((wait.project, wait.queue, bound), []).append(wait.seconds)
    for (project, queue, bound), seconds in sorted(found.items()):
        changed = session.execute(
            update(QueueWait)
            .where(QueueWait.project == project, QueueWait.queue == queue, QueueWait.up_to_seconds == bound)
            .values(attempts=QueueWait.attempts + len(seconds), waited_seconds=QueueWait.waited_seconds + sum(seconds))
            .returning(QueueWait.attempts)
            .execution_options(synchronize_session=False)
        ).one_or_none()
        if changed is None:
            row = QueueWait(project=project, queue=queue, up_to_seconds=bound)
            row.attempts, row.waited_seconds = len(seconds), sum(seconds)
            session.add(row)


def bound_of(up_to_seconds: int) -> float:
    """Upper bound of a histogram row."""
    return math.inf if up_to_seconds == BEYOND else float(up_to_seconds)


def _count(session: Session, names: Collection[str], states: Collection[JobState]) -> dict[str, int]:
    if not names:
        return {}
    counts = select(Job.queue, func.count()).where(Job.queue.in_(names), Job.status.in_(states)).group_by(Job.queue)
    return {row[0]: row[1] for row in session.execute(counts)}
