"""The history of a sweep: changes of its state and other events, each in the transaction of its change."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition
from app.domain.ids import first_id, new_id
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.states import TERMINAL, TRANSITIONS, SweepState, allowed
from app.models import Sweep, SweepEvent
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.lifecycle import audit
from app.services.lifecycle.outbox import OutgoingEvent, enqueue_events, shown_time
from app.services.requests.existing_rows import existing_in
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

ACTOR = "sweeps"  # the coordinator, where it acts by the rules of a sweep
ORDERS: Orders = {"created_at": (SweepEvent.seq,)}


def move(session: Session, sweep: Sweep, to: SweepState, *, actor: str, reason: str = "", message: str = "") -> None:
    """Change the state of a sweep whose row the caller has locked, and write the event. Raises IllegalTransition."""
    before = SweepState(sweep.status)
    if not allowed(before, to):
        after = ", ".join(sorted(TRANSITIONS[before])) or "nothing: it has ended"
        raise IllegalTransition(f"sweep {sweep.id} is {sweep.status} and cannot become {to}; allowed: {after}")
    now = utc_now()
    sweep.status, sweep.status_reason = to, message or reason
    if to is SweepState.RUNNING and sweep.started_at is None:
        sweep.started_at = now
    if to is not SweepState.RUNNING:
        sweep.pending_reason = ""
    if to in TERMINAL:
        sweep.finished_at = now
    sweep.mark_changed()
    event = numbered(sweep, SweepEventType.STATUS, actor=actor, reason=reason, message=message)
    event.from_status, event.to_status = before, to
    write(session, sweep, [event])
    audit.record(
        session,
        actor=actor,
        action="sweep.status",
        project=sweep.project,
        target=sweep.id,
        message=message or reason,
        data={"from": before, "to": to},
    )


def record(
    session: Session,
    sweep: Sweep,
    kind: SweepEventType,
    *,
    actor: str,
    reason: str = "",
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add an event that is not a change of state; the caller has locked the sweep's row."""
    write(session, sweep, [numbered(sweep, kind, actor=actor, reason=reason, message=message, data=data)])


def record_creation(session: Session, sweep: Sweep, *, message: str, warnings: Sequence[str]) -> None:
    """The first events of a new sweep; ``warnings`` are `field: reason` of what has no effect."""
    event = numbered(sweep, SweepEventType.STATUS, actor=sweep.created_by, reason="created", message=message)
    event.to_status = sweep.status
    write(session, sweep, [event])
    if warnings:
        data = {"warnings": list(warnings)}
        text = f"accepted but ignored: {'; '.join(warnings)}"
        record(
            session,
            sweep,
            SweepEventType.WARNING,
            actor=sweep.created_by,
            reason="NOT_ACTED_ON",
            message=text,
            data=data,
        )


def page(session: Session, sweep_id: str, request: PageRequest) -> Page[SweepEvent]:
    return page_of(session, select(SweepEvent).where(SweepEvent.sweep_id == sweep_id), ORDERS, request)


def events_after(session: Session, sweep_id: str, seq: int, *, limit: int = 500) -> Sequence[SweepEvent]:
    """The next events, oldest first."""
    query = select(SweepEvent).where(SweepEvent.sweep_id == sweep_id, SweepEvent.seq > seq)
    return session.scalars(query.order_by(SweepEvent.seq).limit(limit)).all()


def newest_events(
    session: Session, caller: Caller, dialect: str, *, limit: int, since: datetime | None = None
) -> Sequence[SweepEvent]:
    """The newest events of the caller's sweeps of a dialect, `since` a time, oldest first."""
    query = _of_dialect(caller, dialect).order_by(SweepEvent.id.desc()).limit(limit)
    if since is not None:
        query = query.where(SweepEvent.id > first_id("evt", since))
    return session.scalars(query).all()[::-1]


def events_behind(session: Session, caller: Caller, dialect: str, event_id: str, *, limit: int) -> Sequence[SweepEvent]:
    """The next events of the caller's sweeps of a dialect after this one, oldest first."""
    query = _of_dialect(caller, dialect).where(SweepEvent.id > event_id)
    return session.scalars(query.order_by(SweepEvent.id).limit(limit)).all()


def newest_event(session: Session) -> str | None:
    """Id of the newest event of all sweeps: ids sort by time."""
    return session.scalar(select(func.max(SweepEvent.id)))


def existing_events(session: Session, ids: Collection[str]) -> set[str]:
    """Those of the ids that are of events of sweeps."""
    return existing_in(session, SweepEvent.id, ids)


def _of_dialect(caller: Caller, dialect: str) -> Select[Any]:
    query = select(SweepEvent).join(Sweep, Sweep.id == SweepEvent.sweep_id)
    query = query.where(Sweep.foreign[dialect]["name"].as_string().is_not(None))
    return query if caller.project is None else query.where(Sweep.project == caller.project)


def numbered(
    sweep: Sweep,
    kind: SweepEventType,
    *,
    actor: str,
    reason: str = "",
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> SweepEvent:
    """The next event of a sweep whose row the caller has locked, for `write` in the same transaction."""
    sweep.event_seq += 1
    return SweepEvent(
        id=new_id("evt"),
        sweep_id=sweep.id,
        seq=sweep.event_seq,
        at=utc_now(),
        type=kind,
        actor=actor,
        reason=reason,
        message=message,
        data=dict(data or {}),
    )


def write(session: Session, sweep: Sweep, events: Sequence[SweepEvent], *, has_webhooks: bool = True) -> None:
    """Add numbered events, with deliveries for the webhooks that subscribe.

    ``has_webhooks`` is False where the transaction has seen that the project has none.
    """
    if events and sweep in session.new:
        session.flush()  # its row first: its events refer to it
    session.add_all(events)
    if not events or not has_webhooks:
        return
    with session.no_autoflush:  # with what else the transaction changes
        # States are those of jobs in a subscription: one to COMPLETED is not one to the ends of sweeps.
        outgoing = [OutgoingEvent(each.id, each.type, None, partial(_payload, sweep, each)) for each in events]
        enqueue_events(session, sweep.project, outgoing)


def _payload(sweep: Sweep, event: SweepEvent) -> dict[str, Any]:
    """Body of a delivery: the event as the API shows it, and its sweep."""
    names = ("id", "seq", "type", "from_status", "to_status", "actor", "reason", "message", "data")
    return {
        "event": {**{name: getattr(event, name) for name in names}, "at": shown_time(event.at)},
        "sweep": {
            "sweep_id": sweep.id,
            "project": sweep.project,
            "name": sweep.name,
            "labels": sweep.labels,
            "status": sweep.status,
        },
    }
