"""The cluster at a glance: nodes, devices, jobs, queues, and the processes that keep it going."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.nodes.sandboxes import WHY_NONE
from app.domain.units import WHOLE
from app.models import Device, Job, Node, ProcessBeat, Reservation, StuckDevice
from app.models.base import utc_now
from app.models.node import NODE_STATES
from app.security.permissions import Caller
from app.services.queues import queues
from app.services.queues.queues import QueueSummary
from app.services.scheduling.planner import PLANNER

# Only tells people whether one is there; nothing is decided by these clocks.
FRESH = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True)
class DeviceCount:
    """``free``: held by nobody, on a node that takes jobs; ``out_of_service``: by a process that can't be ended."""

    type: str
    total: int = 0
    in_use: int = 0
    share_in_use: float = 0.0  # in devices: a half of one is 0.5
    free: int = 0
    out_of_service: int = 0


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A coordinator, or whoever holds the planner's seat, by the name of its machine."""

    name: str
    host: str
    last_seen_at: datetime
    is_alive: bool


@dataclass(frozen=True, kw_only=True)
class Cluster:
    nodes: Mapping[str, int]
    devices: Sequence[DeviceCount]
    jobs: Mapping[str, int]
    queues: Sequence[QueueSummary]
    planner: Beat | None
    coordinators: Sequence[Beat]
    parts: Mapping[str, str] = field(default_factory=dict)


def look(session: Session, caller: Caller, *, failing: Mapping[str, str]) -> Cluster:
    """Counts of jobs are of those that the caller sees; ``failing`` is what ``readiness`` found."""
    beats = session.scalars(select(ProcessBeat).order_by(ProcessBeat.name)).all()
    return Cluster(
        nodes=nodes_by_state(session),
        devices=devices_by_type(session),
        jobs=_jobs_by_state(session, caller),
        queues=queues.summaries(session, caller),
        planner=next((_beat(row) for row in beats if row.name == PLANNER), None),
        coordinators=[_beat(row) for row in beats if row.kind == "coordinator"],
        parts={part: failing.get(part, "ok") for part in ("database", "broker", "coordinator")},
    )


def nodes_by_state(session: Session) -> dict[str, int]:
    counted = {row[0]: row[1] for row in session.execute(select(Node.state, func.count()).group_by(Node.state))}
    return {state: counted.get(state, 0) for state in NODE_STATES}


def devices_by_type(session: Session) -> list[DeviceCount]:
    """Every type of device that a known node has."""
    of_each = (Reservation.node, Reservation.device_index)
    given = select(*of_each, func.sum(Reservation.share).label("share")).group_by(*of_each).subquery()
    held = (given.c.node == Device.node) & (given.c.device_index == Device.index)
    left = select(StuckDevice.node, StuckDevice.device_index).distinct().subquery()
    takes_jobs = (Node.state == "ready") & Node.sandbox.not_in(WHY_NONE)
    in_use, stuck = given.c.share.is_not(None), left.c.node.is_not(None)
    rows = session.execute(
        select(
            Device.type, takes_jobs.label("takes_jobs"), in_use.label("in_use"), stuck.label("stuck"),
            func.count().label("number"),
            func.coalesce(func.sum(given.c.share), 0).label("share"),
        )
        .join(Node, Node.name == Device.node)
        .outerjoin(given, held)
        .outerjoin(left, (left.c.node == Device.node) & (left.c.device_index == Device.index))
        .group_by(Device.type, takes_jobs, in_use, stuck)
    ).all()  # fmt: skip
    return [
        DeviceCount(
            type=kind,
            total=sum(row.number for row in of_kind),
            in_use=sum(row.number for row in of_kind if row.in_use),
            share_in_use=int(sum(row.share for row in of_kind)) / WHOLE,
            free=sum(row.number for row in of_kind if not row.in_use and not row.stuck and row.takes_jobs),
            out_of_service=sum(row.number for row in of_kind if row.stuck),
        )
        for kind in sorted({row.type for row in rows})
        for of_kind in [[row for row in rows if row.type == kind]]
    ]


def _jobs_by_state(session: Session, caller: Caller) -> dict[str, int]:
    query = select(Job.status, func.count()).group_by(Job.status)
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    counted = {row[0]: row[1] for row in session.execute(query)}
    return {str(state): counted.get(state, 0) for state in JobState}


def _beat(row: ProcessBeat) -> Beat:
    fresh = abs(utc_now() - row.last_seen_at) <= FRESH
    # The holder is host:boot:pid:start; what is behind the host is of no use to a person.
    return Beat(name=row.name, host=row.holder.split(":", 1)[0], last_seen_at=row.last_seen_at, is_alive=fresh)
