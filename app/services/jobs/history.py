"""History of jobs: events and records of attempts."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from app.domain.ids import first_id
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Attempt, Job, JobEvent
from app.services.requests.existing_rows import existing_in
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

# Events of one job are numbered; their times may be equal.
ORDERS: Orders = {"created_at": (JobEvent.seq,)}


def page(session: Session, job_id: str, request: PageRequest) -> Page[JobEvent]:
    return page_of(session, select(JobEvent).where(JobEvent.job_id == job_id), ORDERS, request)


def events_after(session: Session, job_id: str, seq: int, *, limit: int = 500) -> Sequence[JobEvent]:
    """The next events, oldest first."""
    query = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.seq > seq)
    return session.scalars(query.order_by(JobEvent.seq).limit(limit)).all()


def newest_events(
    session: Session, project: str | None, *, limit: int, since: datetime | None = None
) -> Sequence[JobEvent]:
    """The newest events of a project's jobs or of all, `since` a time, oldest first."""
    query = _of_project(project).order_by(JobEvent.id.desc()).limit(limit)
    if since is not None:
        query = query.where(JobEvent.id > first_id("evt", since))
    return session.scalars(query).all()[::-1]


def events_behind(session: Session, project: str | None, event_id: str, *, limit: int) -> Sequence[JobEvent]:
    """The next events of a project's jobs or of all after this one, oldest first."""
    query = _of_project(project).where(JobEvent.id > event_id)
    return session.scalars(query.order_by(JobEvent.id).limit(limit)).all()


def newest_event(session: Session) -> str | None:
    """Id of the newest event of all jobs: ids sort by time."""
    return session.scalar(select(func.max(JobEvent.id)))


def existing_events(session: Session, ids: Collection[str]) -> set[str]:
    """Those of the ids that are of events."""
    return existing_in(session, JobEvent.id, ids)


def _of_project(project: str | None) -> Select[Any]:
    query = select(JobEvent)
    return query if project is None else query.join(Job, Job.id == JobEvent.job_id).where(Job.project == project)


def ended_in(session: Session, job_ids: Sequence[str]) -> dict[str, JobState]:
    """Ended job → the state before its terminal one."""
    if not job_ids:
        return {}
    query = select(JobEvent.job_id, JobEvent.from_status).where(
        JobEvent.job_id.in_(job_ids), JobEvent.type == EventType.STATUS, JobEvent.to_status.in_(TERMINAL)
    )
    return {row.job_id: JobState(row.from_status) for row in session.execute(query) if row.from_status}


def newest_attempts(session: Session, job_ids: Sequence[str]) -> dict[str, Attempt]:
    """Job → its newest attempt; jobs that never started are left out."""
    newest = (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt)
    query = select(Attempt).join(Job, newest).where(Job.id.in_(job_ids))
    return {attempt.job_id: attempt for attempt in session.scalars(query)}


def attempts(session: Session, job_id: str) -> Sequence[Attempt]:
    """All attempts of the job, oldest first."""
    return attempts_of(session, [job_id])[job_id]


def attempts_of(session: Session, job_ids: Sequence[str]) -> dict[str, list[Attempt]]:
    """The same for each of these jobs."""
    found: dict[str, list[Attempt]] = {job_id: [] for job_id in job_ids}
    query = select(Attempt).where(Attempt.job_id.in_(job_ids)).order_by(Attempt.job_id, Attempt.number)
    for attempt in session.scalars(query):
        found[attempt.job_id].append(attempt)
    return found


def transitions_of(session: Session, job_ids: Sequence[str]) -> dict[str, list[tuple[datetime, JobState]]]:
    """When each of these jobs entered which state, oldest first."""
    found: dict[str, list[tuple[datetime, JobState]]] = {job_id: [] for job_id in job_ids}
    query = (
        select(JobEvent.job_id, JobEvent.at, JobEvent.to_status)
        .where(JobEvent.job_id.in_(job_ids), JobEvent.type == EventType.STATUS)
        .order_by(JobEvent.job_id, JobEvent.seq)
    )
    for job_id, at, status in session.execute(query):
        if status is not None:  # every transition has one
            found[job_id].append((at, JobState(status)))
    return found
