"""The cluster at a glance: nodes, devices, jobs, queues, and the processes that keep it going."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.job_state import JobState
from app.models import Device, Job, Node, ProcessBeat, Reservation
from app.models.base import utc_now
from app.models.node import NODE_STATES
from app.security.permissions import Caller
from app.services import queues
from app.services.queues import QueueSummary
from app.services.scheduling import PLANNER

# Only tells people whether one is there; nothing is decided by these clocks.
FRESH = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True)
class DeviceCount:
    """``free``: held by nobody, on a node that takes jobs."""

    type: str
    total: int = 0
    in_use: int = 0
    free: int = 0


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
    held = (Reservation.node == Device.node) & (Reservation.device_index == Device.index)
    rows = session.execute(
        select(Device.type, Node.state, Reservation.job_id.is_not(None).label("in_use"), func.count().label("number"))
        .join(Node, Node.name == Device.node)
        .outerjoin(Reservation, held)
        .group_by(Device.type, Node.state, Reservation.job_id.is_not(None))
    ).all()
    return [
        DeviceCount(
            type=kind,
            total=sum(row.number for row in of_kind),
            in_use=sum(row.number for row in of_kind if row.in_use),
            free=sum(row.number for row in of_kind if not row.in_use and row.state == "ready"),
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
