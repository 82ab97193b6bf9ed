"""The only writer of `Job.status`: checks the table, compares and sets, and writes the event in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, CursorResult, Dialect, Select, Table, Update, and_, bindparam, update
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.orm.attributes import set_committed_value

from app.domain.errors import IllegalTransition, LeaseLost, NotFound, StaleJob
from app.domain.ids import new_id
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import HELD, TERMINAL, TRANSITIONS, JobState, allowed
from app.models import AuditEntry, Job, JobEvent
from app.models.base import Base, utc_now
from app.models.insertion import GuardedInsert, insert_now, new_row, set_columns
from app.services.lifecycle import audit, labels
from app.services.lifecycle.outbox import HAS_WEBHOOKS, enqueue, with_webhooks

_JOB = cast(Table, Job.__table__)
# The columns of a job that a transition and its webhook payload read, for callers that load only these.
TRANSITION_COLUMNS: tuple[InstrumentedAttribute[Any], ...] = (
    Job.id,
    Job.project,
    Job.labels,
    Job.status,
    Job.version,
    Job.fence,
    Job.event_seq,
    Job.started_at,
    Job.name,
    Job.queue,
    Job.training_type,
    Job.framework,
    Job.attempt,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One of several jobs that change to a state together, with the message of its event and other changed columns."""

    job: Job
    message: str
    changes: Mapping[str, Any]


def load_for_change(session: Session, job_id: str) -> Job:
    """The job with its row locked until the transaction ends (on SQLite the write transaction is the lock)."""
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None:
        raise NotFound(f"no job {job_id}")
    return job


def transition(  # noqa: PLR0913  the single entry point: every caller spells out what the event contains
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

    Raises IllegalTransition when the table has no such transition, LeaseLost when ``fence`` is not the job's newest
    token, StaleJob when the job was changed since it was loaded. In each case nothing was written.
    """
    now = utc_now()
    _check(job, to, fence)
    session.flush()  # earlier changes of the job are written first
    values = {"status_reason": message or reason, **_implied(job, to, now), **changes}
    row = session.connection().execute(_move_one(tuple(values)), _parameters(job, values)).one_or_none()
    if row is None:
        raise _stale(job)
    event = _event(job, to, now, seq=row.event_seq, actor=actor, reason=reason, message=message, data=data or {})
    for name in (*values, "event_seq"):
        set_committed_value(job, name, getattr(row, name))
    insert_now(session, (event, _entry(job, event)))
    if to in TERMINAL and job.labels:
        labels.end(session, job.id, to)
    if row.has_webhooks:
        enqueue(session, job, event)


def transition_all(session: Session, steps: Sequence[Step], to: JobState, *, actor: str, reason: str = "") -> None:
    """Move several jobs, which the caller has locked and read in this transaction, with a few statements for all.

    Raises StaleJob when one of them has changed; others may already have been written, so the transaction must not be
    committed.
    """
    now, moved, events = utc_now(), [], []
    for step in steps:
        job = step.job
        _check(job, to, None)
        seq = job.event_seq + 1
        values = {"status_reason": step.message or reason, **_implied(job, to, now), **step.changes, "event_seq": seq}
        events.append(_event(job, to, now, seq=seq, actor=actor, reason=reason, message=step.message, data={}))
        moved.append((job, values))
    session.flush()
    _write_all(session.connection(), moved)
    for job, values in moved:
        for name, value in values.items():
            set_committed_value(job, name, value)
    insert_now(session, (*events, *(_entry(job, event) for (job, _), event in zip(moved, events, strict=True))))
    subscribed = with_webhooks(session, {job.project for job, _ in moved})
    for (job, _), event in zip(moved, events, strict=True):
        if job.project in subscribed:
            enqueue(session, job, event)


def _write_all(connection: Connection, moved: Sequence[tuple[Job, Mapping[str, Any]]]) -> None:
    """One statement per set of changed columns; a job that starts for the first time changes one more."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for job, values in moved:
        row = {**_parameters(job, values), "read_event_seq": job.event_seq}
        alike.setdefault(tuple(values), []).append(row)
    for names, rows in alike.items():
        result: CursorResult[Any] = connection.execute(_move_many(names), rows)
        if result.rowcount != len(rows):
            raise StaleJob("one of several jobs was changed concurrently since it was read; read again")


def hand_over(session: Session, job: Job, **changes: Any) -> None:
    """Hand a held job to another attempt without a change of state: a new token, and other columns of its row.

    Raises StaleJob when the job was changed since it was loaded.
    """
    handed = session.scalar(
        update(Job)
        .where(Job.id == job.id, Job.status == job.status, Job.version == job.version, Job.fence == job.fence)
        .values({"fence": Job.fence + 1, "version": Job.version + 1, "updated_at": utc_now(), **changes})
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    )
    if handed is None:
        raise _stale(job)
    session.refresh(job)


def force_pause(session: Session, job: Job, *, actor: str, reason: str) -> bool:
    """Make a pending pause unconditional: it is carried out even without a checkpoint, since the devices are needed.

    Returns whether that changed anything.
    """
    if job.requested != "pause" or job.pause_force:
        return False
    job.pause_force = True
    job.mark_changed()
    session.flush()
    record_event(session, job.id, EventType.PAUSE_REQUESTED, actor=actor, message=reason, data={"force": True})
    return True


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A new job, and what its history says of it.

    ``warnings``: `field: reason` of each field of its document without effect; they become an event.
    """

    job: Job
    actor: str
    message: str
    data: Mapping[str, Any]
    warnings: Sequence[str] = ()


def record_submission(session: Session, made: Submission, *, has_webhooks: bool) -> None:
    """Write a new job, its first events, and an audit entry."""
    events = _first_events(made)
    insert_now(session, _rows(made, events))
    for event in events if has_webhooks else ():
        enqueue(session, made.job, event)


def guarded_submission(
    dialect: Dialect, made: Submission, guard: Select[Any], parameters: dict[str, Any]
) -> GuardedInsert:
    """Writes it as `record_submission` does for a project without webhooks, if the query ``guard`` finds a row."""
    return GuardedInsert(dialect, guard, parameters, _rows(made, _first_events(made)))


def _first_events(made: Submission) -> list[JobEvent]:
    job, warnings = made.job, made.warnings
    set_columns(job, status=JobState.PENDING, attempt=0, event_seq=1, created_at=utc_now())
    data = dict(made.data)
    submitted = _first_event(
        job, EventType.SUBMITTED, to_status=job.state, actor=made.actor, message=made.message, data=data
    )
    if not warnings:
        return [submitted]
    set_columns(job, event_seq=2)
    fields = {"fields": [line.partition(": ")[0] for line in warnings], "warnings": list(warnings)}
    ignored = f"accepted but ignored: {'; '.join(warnings)}"
    return [submitted, _first_event(job, EventType.WARNING, message=ignored, reason="NOT_ACTED_ON", data=fields)]


def _rows(made: Submission, events: Sequence[JobEvent]) -> list[Base]:
    job = made.job
    entry = audit.entry(actor=made.actor, action="job.submit", project=job.project, target=job.id, data=made.data)
    return [job, *events, entry, *labels.rows(job)]


def _first_event(
    job: Job,
    type_: EventType,
    *,
    to_status: JobState | None = None,
    actor: str = "",
    message: str,
    reason: str = "",
    data: dict[str, Any],
) -> JobEvent:
    """An event of a new job, whose row is inserted with it."""
    return new_row(
        JobEvent,
        id=new_id("evt"),
        job_id=job.id,
        seq=job.event_seq,
        at=job.created_at,
        type=type_,
        to_status=to_status,
        actor=actor,
        message=message,
        reason=reason,
        data=data,
    )


def record_event(  # noqa: PLR0913  an event has this many fields
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
    """Add an event that is not a transition; ``to_status`` is the state in which the job was created."""
    counted = session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(event_seq=Job.event_seq + 1)
        .returning(Job.event_seq, HAS_WEBHOOKS)
        .execution_options(synchronize_session=False)
    ).one()
    event = JobEvent(
        id=new_id("evt"),
        job_id=job_id,
        seq=counted.event_seq,
        at=utc_now(),
        type=kind,
        to_status=to_status,
        actor=actor,
        reason=reason,
        message=message,
        data=data or {},
    )
    session.add(event)
    if counted.has_webhooks:
        enqueue(session, session.get_one(Job, job_id), event)
    return event


def _stale(job: Job) -> StaleJob:
    return StaleJob(f"job {job.id} was changed concurrently since it was read; read it again")


def _event(  # noqa: PLR0913  as above
    job: Job, to: JobState, now: datetime, *, seq: int, actor: str, reason: str, message: str, data: dict[str, Any]
) -> JobEvent:
    return new_row(
        JobEvent,
        id=new_id("evt"),
        job_id=job.id,
        seq=seq,
        at=now,
        type=EventType.STATUS,
        from_status=job.state,
        to_status=to,
        actor=actor,
        reason=reason,
        message=message,
        data=data,
    )


def _entry(job: Job, event: JobEvent) -> AuditEntry:
    return audit.entry(
        actor=event.actor,
        action="job.status",
        project=job.project,
        target=job.id,
        message=event.message or event.reason,
        data={"from": event.from_status, "to": event.to_status},
    )


def _as_read() -> ColumnElement[bool]:
    return and_(*(_JOB.c[name] == bindparam(f"read_{name}") for name in ("id", "status", "version", "fence")))


def _parameters(job: Job, values: Mapping[str, Any]) -> dict[str, Any]:
    """Statement parameters: old values for the condition, new values to set."""
    read = {"read_id": job.id, "read_status": job.status, "read_version": job.version, "read_fence": job.fence}
    return read | {f"new_{name}": value for name, value in values.items()}


# Transitions are most of a cluster's writes: statements are built once per set of columns and bypass the session, which
# would take several times as long.
@lru_cache(maxsize=64)
def _move_one(names: tuple[str, ...]) -> Update:
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    moved = update(_JOB).where(_as_read()).values({**new, "event_seq": _JOB.c.event_seq + 1})
    # The updated row, to refresh the caller's object.
    return moved.returning(*(_JOB.c[name] for name in names), _JOB.c.event_seq, HAS_WEBHOOKS)


@lru_cache(maxsize=64)
def _move_many(names: tuple[str, ...]) -> Update:
    is_read = _as_read() & (_JOB.c.event_seq == bindparam("read_event_seq"))
    return update(_JOB).where(is_read).values({name: bindparam(f"new_{name}") for name in names})


def _check(job: Job, to: JobState, fence: int | None) -> None:
    if fence is not None and job.fence != fence:
        raise LeaseLost(f"job {job.id} is no longer held with token {fence}")
    if not allowed(job.state, to):
        after = ", ".join(sorted(TRANSITIONS[job.state])) or "nothing: it has ended"
        raise IllegalTransition(f"job {job.id} is {job.status} and cannot become {to}; allowed: {after}")


def _implied(job: Job, to: JobState, now: datetime) -> dict[str, Any]:
    """Columns that change with every transition to a state."""
    values: dict[str, Any] = {"status": to, "version": job.version + 1, "updated_at": now}
    if (job.state in HELD) != (to in HELD):
        # A new holder gets a new token, which makes the previous holder's token stale.
        values["fence"] = job.fence + 1
    if to is JobState.QUEUED:
        values |= {
            "queued_at": now,
            "requested": None,
            "requested_reason": "",
            "node_names": [],
            "eta_seconds": None,
            "awaits_node": "",
        }
    elif to is JobState.PREPARING and job.started_at is None:
        values["started_at"] = now
    elif to is JobState.PAUSED:
        values |= {"requested": None, "pending_reason": "", "eta_seconds": None}
    elif to in TERMINAL:
        values |= {"requested": None, "pending_reason": "", "eta_seconds": None, "finished_at": now}
    return values
