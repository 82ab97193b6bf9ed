"""What happened to a job: its events, and the records of its attempts."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.models import Attempt, Job, JobEvent
from app.services.pages import Orders, Page, PageRequest, page_of

# Events of one job are numbered; their times may be equal.
ORDERS: Orders = {"created_at": (JobEvent.seq,)}


def page(session: Session, job_id: str, request: PageRequest) -> Page[JobEvent]:
    return page_of(session, select(JobEvent).where(JobEvent.job_id == job_id), ORDERS, request)


def events_after(session: Session, job_id: str, seq: int, *, limit: int = 500) -> Sequence[JobEvent]:
    """The next events, oldest first."""
    query = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.seq > seq)
    return session.scalars(query.order_by(JobEvent.seq).limit(limit)).all()


def events_of(session: Session, job_ids: Sequence[str], *, limit: int) -> Sequence[JobEvent]:
    """The newest of these jobs, newest first."""
    query = select(JobEvent).where(JobEvent.job_id.in_(job_ids))
    return session.scalars(query.order_by(JobEvent.at.desc(), JobEvent.job_id, JobEvent.seq.desc()).limit(limit)).all()


def newest_event(session: Session) -> str | None:
    """Of all jobs: ids made later sort after earlier ones."""
    return session.scalar(select(func.max(JobEvent.id)))


def newest_attempts(session: Session, job_ids: Sequence[str]) -> dict[str, Attempt]:
    """By job; one that was never started has none."""
    newest = (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt)
    query = select(Attempt).join(Job, newest).where(Job.id.in_(job_ids))
    return {attempt.job_id: attempt for attempt in session.scalars(query)}


def attempts(session: Session, job_id: str) -> Sequence[Attempt]:
    """All of them, oldest first."""
    return session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)).all()
