"""Where a service answers: the relays of its replicas, and the reason while there is none."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Attempt, Job, Replica, Service
from app.models.base import utc_now

STARTING = "a replica is starting"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The relay of one attempt of a replica; ``fence`` is a part of its token."""

    job_id: str
    attempt: int
    fence: int
    address: str
    port: int
    revision: int
    number: int


def of(session: Session, service_id: str) -> list[Endpoint]:
    """The endpoints that new requests may be sent to, newest revision first."""
    query = (
        select(Replica)
        .join(Job, Job.id == Replica.job_id)
        .where(
            Replica.service_id == service_id,
            Replica.drain_requested_at.is_(None),
            Replica.answers_since.is_not(None),
            Job.status == JobState.SERVING,
            Job.fence == Replica.fence,
            Job.requested.is_(None),
        )
        .order_by(Replica.revision.desc(), Replica.number)
    )
    return [found for row in session.scalars(query) if (found := _endpoint(row)) is not None]


def _endpoint(row: Replica) -> Endpoint | None:
    if row.attempt is None or row.fence is None or row.address is None or row.port is None:
        return None
    return Endpoint(
        job_id=row.job_id,
        attempt=row.attempt,
        fence=row.fence,
        address=row.address,
        port=row.port,
        revision=row.revision,
        number=row.number,
    )


def why_none(session: Session, service_id: str) -> str:
    """Why no replica answers, in the planner's words where a job waits for devices; else how far one has loaded."""
    service = session.get(Service, service_id)
    if service is None:
        return "the service does not exist any more"
    return waits_of(session, [service_id]).get(service_id) or service.pending_reason or _loading(session, service_id)


def _loading(session: Session, service_id: str) -> str:
    """How far the first replica that starts has come, by the time that the last of its revision took: an estimate."""
    attempts = (
        select(Attempt.started_at, Replica.answers_since, Replica.revision)
        .join(Replica, (Replica.job_id == Attempt.job_id))
        .join(Job, (Job.id == Attempt.job_id))
        .where(Replica.service_id == service_id, Attempt.started_at.is_not(None))
    )
    starting = attempts.where(
        Attempt.number == Job.attempt, Job.status == JobState.PREPARING, Replica.drain_requested_at.is_(None)
    )
    began = session.execute(starting.order_by(Attempt.started_at).limit(1)).one_or_none()
    if began is None:
        return STARTING
    since = max(0.0, (utc_now() - began.started_at).total_seconds())  # the times are of several clocks
    answered = attempts.where(
        Replica.revision == began.revision, Attempt.number == Replica.attempt, Replica.answers_since.is_not(None)
    )
    last = session.execute(answered.order_by(Replica.answers_since.desc()).limit(1)).one_or_none()
    if last is None:
        return f"{STARTING}, since {since:.0f} s"
    took = max(0.0, (last.answers_since - last.started_at).total_seconds())
    share = min(99, int(100 * since / max(took, since, 0.1)))
    return f"loading {share} %: {since:.0f} s, and the last replica took {took:.0f} s"


def waits_of(session: Session, service_ids: Collection[str]) -> Mapping[str, str]:
    """Service → why the first of its replicas that waits does; none where no replica waits."""
    query = (
        select(Replica.service_id, Job.pending_reason)
        .join(Job, Replica.job_id == Job.id)
        .where(
            Replica.service_id.in_(service_ids),
            Replica.drain_requested_at.is_(None),
            Job.status.not_in([*TERMINAL, JobState.SERVING]),
            Job.pending_reason != "",
        )
        .order_by(Replica.number.desc())
    )
    return {row[0]: row[1] for row in session.execute(query)}
