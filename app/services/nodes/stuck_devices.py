"""Devices held by unkillable processes: out of service until the process is gone, or an administrator releases them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, SQLColumnExpression, delete, exists, join, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound
from app.domain.lifecycle.events import EventType
from app.models import Attempt, Node, Reservation, StuckDevice
from app.models.base import database_now
from app.security.permissions import Caller
from app.services.lifecycle import audit, transitions
from app.services.nodes.unknown import no_node
from app.services.requests.idempotency import OnWritten, not_stored

REASON = "PROCESS_STUCK"
# The node checks several times within this time: a process not seen for longer is not visible to it.
UNSEEN = timedelta(seconds=60)


class StuckProcess(NamedTuple):
    """What a node knows of a process that holds a device, and when it was last seen."""

    job_id: str
    attempt: int
    place: str
    seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class HeldDevices:
    """Devices of a node that a process of an ended attempt may still use; ``place``: its boot and pid namespace."""

    node: str
    devices: tuple[int, ...]
    job_id: str
    attempt: int
    place: str


def held_by(attempt: Attempt, *, places: Mapping[str, str]) -> list[HeldDevices]:
    """Devices of an attempt by its record, one entry per node, with ``place`` where known."""
    return [
        HeldDevices(
            node=node, devices=tuple(indices), job_id=attempt.job_id, attempt=attempt.number, place=places.get(node, "")
        )
        for node, indices in zip(attempt.node_names, attempt.device_indices, strict=True)
    ]


def take_out_of_service(session: Session, held: HeldDevices, *, actor: str, tell: bool = True) -> None:
    """Take the devices out of service; repeating it refreshes the time at which the process was seen.

    They may belong to another attempt already, if the lease expired before the process was seen: that attempt
    continues. ``tell``: add an event to the job, once; the caller has locked the job then.
    """
    if not held.devices:
        return
    now = database_now(session)
    key = {"node": held.node, "job_id": held.job_id, "attempt": held.attempt}
    rows = [
        {**key, "device_index": index, "place": held.place, "since": now, "seen_at": now, "is_told": False}
        for index in held.devices
    ]
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    new = insert(StuckDevice).values(rows)
    session.execute(
        new.on_conflict_do_update(
            index_elements=["node", "device_index", "job_id", "attempt"],
            set_={"seen_at": new.excluded.seen_at, "place": new.excluded.place},
        )
    )
    if tell:
        _record_warning(session, held, actor)


def _record_warning(session: Session, held: HeldDevices, actor: str) -> None:
    unreported = _is(held.node, held.job_id, held.attempt) & StuckDevice.is_told.is_(False)
    newly_reported = update(StuckDevice).where(unreported).values(is_told=True).returning(StuckDevice.device_index)
    devices = sorted(session.scalars(newly_reported.execution_options(synchronize_session=False)))
    if devices:
        transitions.record_event(
            session,
            held.job_id,
            EventType.WARNING,
            actor=actor,
            reason=REASON,
            message=f"a process of attempt {held.attempt} can't be killed, not even by SIGKILL: devices "
            f"{', '.join(map(str, devices))} of node {held.node} are out of service until it is gone",
            data={"attempt": held.attempt, "node": held.node, "devices": devices},
        )


def mark(db: Database, held: HeldDevices, *, actor: str, tell: bool = True) -> None:
    """``take_out_of_service`` for an attempt that another process completes; its job may be deleted by now."""
    with db.write() as session:
        if tell:
            try:
                transitions.load_for_change(session, held.job_id)
            except NotFound:
                tell = False
        take_out_of_service(session, held, actor=actor, tell=tell)


def put_back(db: Database, node: str, job_id: str, attempt: int) -> int:
    """Return the devices of an attempt to service, whose processes are gone; returns the number of devices."""
    mine = _is(node, job_id, attempt)
    with db.read() as session:
        if session.scalar(select(StuckDevice.device_index).where(mine).limit(1)) is None:
            return 0
    with db.write() as session:
        return len(session.scalars(delete(StuckDevice).where(mine).returning(StuckDevice.device_index)).all())


def put_back_by_hand(db: Database, caller: Caller, node: str, *, on_written: OnWritten = not_stored) -> int:
    """Return devices to service on an administrator's request; returns the number of devices.

    Devices whose process the node's worker has seen within the last minute stay out of service. Raises Conflict when
    these are all, and NotFound for an unknown node without devices out of service.
    """
    with db.write() as session:
        long_ago = database_now(session) - UNSEEN
        old = delete(StuckDevice).where(StuckDevice.node == node, StuckDevice.seen_at <= long_ago)
        back = sorted(set(session.scalars(old.returning(StuckDevice.device_index))))
        seen = session.scalar(select(StuckDevice).where(StuckDevice.node == node).limit(1))
        if back:
            audit.record(
                session, actor=caller.actor, action="node.put_back", project=None, target=node, data={"devices": back}
            )
        elif seen is not None:
            raise Conflict(
                f"a process of attempt {seen.attempt} of {seen.job_id} was seen on node {node} within the last "
                f"{UNSEEN.seconds} s: end it, restart the machine, or stop the node's worker and try again in a minute"
            )
        elif session.get(Node, node) is None:
            raise no_node(session, node)
        on_written(session, len(back))
        return len(back)


def of_node(db: Database, node: str) -> Sequence[StuckProcess]:
    columns = StuckDevice.job_id, StuckDevice.attempt, StuckDevice.place, StuckDevice.seen_at
    with db.query() as connection:
        return [StuckProcess._make(row) for row in connection.execute(select(*columns).where(StuckDevice.node == node))]


def unseen(db: Database, row: StuckProcess) -> bool:
    """Whether the process was not seen for so long that a worker which can see it would have seen it."""
    with db.read() as session:
        return database_now(session) - row.seen_at >= UNSEEN


def by_node(session: Session, names: Collection[str] | None = None) -> dict[str, dict[int, StuckDevice]]:
    """Node → device → the first row that took it out of service; of these nodes, or of all."""
    query = select(StuckDevice).order_by(StuckDevice.since.desc())
    if names is not None:
        query = query.where(StuckDevice.node.in_(names))
    found: dict[str, dict[int, StuckDevice]] = {}
    for row in session.scalars(query):
        found.setdefault(row.node, {})[row.device_index] = row
    return found


def any_of(session: Session, node: str, devices: Collection[int]) -> bool:
    """Whether one of these devices is out of service."""
    which = (StuckDevice.node == node) & StuckDevice.device_index.in_(devices)
    return session.scalar(select(StuckDevice.job_id).where(which).limit(1)) is not None


def jobs(session: Session) -> frozenset[str]:
    """Jobs with an unkillable process."""
    return frozenset(session.scalars(select(StuckDevice.job_id).distinct()))


def on(session: Session, nodes: Collection[str]) -> set[tuple[str, int]]:
    """(node, index) of the devices of these nodes that are out of service."""
    query = select(StuckDevice.node, StuckDevice.device_index).where(StuckDevice.node.in_(nodes))
    return {(row.node, row.device_index) for row in session.execute(query)}


def given_to(job_id: SQLColumnExpression[str], attempt: SQLColumnExpression[int]) -> ColumnElement[bool]:
    """SQL condition: one of the devices reserved for the attempt is out of service."""
    same = (StuckDevice.node == Reservation.node) & (StuckDevice.device_index == Reservation.device_index)
    mine = (Reservation.job_id == job_id) & (Reservation.attempt == attempt)
    return exists().select_from(join(StuckDevice, Reservation, same)).where(mine)


def _is(node: str, job_id: str, attempt: int) -> ColumnElement[bool]:
    return (StuckDevice.node == node) & (StuckDevice.job_id == job_id) & (StuckDevice.attempt == attempt)
