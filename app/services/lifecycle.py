"""The only writer of `Job.status`: checks the table, compares and sets, and writes the event in one transaction."""

from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition, LeaseLost, NotFound, StaleJob
from app.domain.events import EventType
from app.domain.ids import new_id
from app.domain.job_state import HELD, TERMINAL, TRANSITIONS, JobState, allowed
from app.models import Job, JobEvent
from app.models.base import utc_now
from app.services import audit
from app.services.webhook_events import HAS_WEBHOOKS, enqueue


def load_for_change(session: Session, job_id: str) -> Job:
    """The job with its row locked until the transaction ends (on SQLite the write transaction is the lock)."""
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None:
        raise NotFound(f"no job {job_id}")
    return job


def transition(  # noqa: PLR0913  the one door: what an event must say is spelled out by every caller
    session: Session,
    job: Job,
    to: JobState,
    *,
    actor: str,
    reason: str = "",
    message: str = "",
    fence: int | None = None,
    data: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Move the job to a state, together with other columns of its row (``changes``), and write the event.

    Raises IllegalTransition when the table has no such step, LeaseLost when ``fence`` is not the job's newest token,
    StaleJob when somebody changed the job since it was loaded. In each case nothing was written.
    """
    before, now = job.state, utc_now()
    _check(job, to, fence)
    counted = session.execute(
        update(Job)
        .where(Job.id == job.id, Job.status == before, Job.version == job.version, Job.fence == job.fence)
        .values({"status_reason": message or reason, **_implied(job, to, now), **changes})
        .returning(Job.event_seq, HAS_WEBHOOKS)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if counted is None:
        raise StaleJob(f"job {job.id} was changed by somebody else since it was read; look again")
    event = JobEvent(
        id=new_id("evt"), job_id=job.id, seq=counted.event_seq, at=now, type=EventType.STATUS, from_status=before,
        to_status=to, actor=actor, reason=reason, message=message, data=data or {},
    )  # fmt: skip
    session.add(event)
    _record_step(session, job.project, event)
    session.flush()
    session.refresh(job)
    if counted.has_webhooks:
        enqueue(session, job, event)


def record_submission(session: Session, job: Job, *, actor: str, message: str) -> None:
    """Write a new job, and the first line of its history."""
    job.event_seq = 1
    job.status = JobState.PENDING
    event = JobEvent(
        id=new_id("evt"), job_id=job.id, seq=1, at=utc_now(), type=EventType.SUBMITTED, to_status=job.state,
        actor=actor, message=message, reason="", data={},
    )  # fmt: skip
    session.add_all((job, event))
    session.flush()
    if session.scalar(select(HAS_WEBHOOKS).select_from(Job).where(Job.id == job.id)):
        enqueue(session, job, event)


def record_event(  # noqa: PLR0913  an event line has this many parts
    session: Session,
    job_id: str,
    kind: EventType,
    *,
    actor: str = "",
    reason: str = "",
    message: str = "",
    data: dict[str, Any] | None = None,
    to_status: JobState | None = None,
) -> JobEvent:
    """Add a line to the job's history that is not a change of state; ``to_status`` is the one it was created in."""
    counted = session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(event_seq=Job.event_seq + 1)
        .returning(Job.event_seq, HAS_WEBHOOKS)
        .execution_options(synchronize_session=False)
    ).one()
    event = JobEvent(
        id=new_id("evt"), job_id=job_id, seq=counted.event_seq, at=utc_now(), type=kind, to_status=to_status,
        actor=actor, reason=reason, message=message, data=data or {},
    )  # fmt: skip
    session.add(event)
    if counted.has_webhooks:
        enqueue(session, session.get_one(Job, job_id), event)
    return event


def _record_step(session: Session, project: str, event: JobEvent) -> None:
    audit.record(
        session, actor=event.actor, action="job.status", project=project, target=event.job_id,
        message=event.message or event.reason, data={"from": event.from_status, "to": event.to_status},
    )  # fmt: skip


def _check(job: Job, to: JobState, fence: int | None) -> None:
    if fence is not None and job.fence != fence:
        raise LeaseLost(f"job {job.id} is no longer held with token {fence}")
    if not allowed(job.state, to):
        after = ", ".join(sorted(TRANSITIONS[job.state])) or "nothing: it has ended"
        raise IllegalTransition(f"job {job.id} is {job.status} and cannot become {to}; allowed: {after}")


def _implied(job: Job, to: JobState, now: datetime) -> dict[str, Any]:
    """Columns that change with every transition to a state, whoever makes it."""
    values: dict[str, Any] = {
        "status": to, "version": Job.version + 1, "event_seq": Job.event_seq + 1, "updated_at": now,
    }  # fmt: skip
    if (job.state in HELD) != (to in HELD):
        # A new holder gets a new token; a gone one's is stale at once: what it still sends changes nothing.
        values["fence"] = Job.fence + 1
    if to is JobState.QUEUED:
        values |= {"queued_at": now, "requested": None, "requested_reason": "", "node_names": []}
    elif to is JobState.PREPARING and job.started_at is None:
        values["started_at"] = now
    elif to is JobState.PAUSED:
        values |= {"requested": None, "pending_reason": "", "eta_seconds": None}
    elif to in TERMINAL:
        values |= {"requested": None, "pending_reason": "", "eta_seconds": None, "finished_at": now}
    return values
