"""The cluster summary: nodes, devices, jobs, queues, coordinators and the planner."""

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

# For display only; no decision depends on these clocks.
FRESH = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True)
class DeviceCount:
    """``free``: unused devices of schedulable nodes; ``idle``: of other nodes, such as lost ones; ``out_of_service``:
    devices held by an unkillable process.
    """

    type: str
    total: int = 0
    in_use: int = 0
    share_in_use: float = 0.0  # in devices: half of one is 0.5
    free: int = 0
    idle: int = 0
    out_of_service: int = 0


@dataclass(frozen=True, kw_only=True)
class CoordinatorStatus:
    """A coordinator, or the elected planner, with its host name."""

    name: str
    host: str
    last_seen_at: datetime
    is_alive: bool


@dataclass(frozen=True, kw_only=True)
class ClusterSummary:
    nodes: Mapping[str, int]
    devices: Sequence[DeviceCount]
    jobs: Mapping[str, int]
    queues: Sequence[QueueSummary]
    planner: CoordinatorStatus | None
    coordinators: Sequence[CoordinatorStatus]
    parts: Mapping[str, str] = field(default_factory=dict)


def summarize(session: Session, caller: Caller, *, failing: Mapping[str, str]) -> ClusterSummary:
    """The summary; counts only jobs visible to the caller. ``failing`` is the result of ``readiness.failing_parts``."""
    beats = session.scalars(select(ProcessBeat).order_by(ProcessBeat.name)).all()
    return ClusterSummary(
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
    """Device counts by type, over all registered nodes."""
    of_each = (Reservation.node, Reservation.device_index)
    given = select(*of_each, func.sum(Reservation.share).label("share")).group_by(*of_each).subquery()
    held = (given.c.node == Device.node) & (given.c.device_index == Device.index)
    left = select(StuckDevice.node, StuckDevice.device_index).distinct().subquery()
    takes_jobs = (Node.state == "ready") & Node.sandbox.not_in(WHY_NONE)
    in_use, stuck = given.c.share.is_not(None), left.c.node.is_not(None)
    rows = session.execute(
        select(
            Device.type,
            takes_jobs.label("takes_jobs"),
            in_use.label("in_use"),
            stuck.label("stuck"),
            func.count().label("number"),
            func.coalesce(func.sum(given.c.share), 0).label("share"),
        )
        .join(Node, Node.name == Device.node)
        .outerjoin(given, held)
        .outerjoin(left, (left.c.node == Device.node) & (left.c.device_index == Device.index))
        .group_by(Device.type, takes_jobs, in_use, stuck)
    ).all()
    return [
        DeviceCount(
            type=kind,
            total=sum(row.number for row in of_kind),
            in_use=sum(row.number for row in of_kind if row.in_use),
            share_in_use=int(sum(row.share for row in of_kind)) / WHOLE,
            free=sum(row.number for row in of_kind if not row.in_use and not row.stuck and row.takes_jobs),
            idle=sum(row.number for row in of_kind if not row.in_use and not row.stuck and not row.takes_jobs),
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


def _beat(row: ProcessBeat) -> CoordinatorStatus:
    fresh = abs(utc_now() - row.last_seen_at) <= FRESH
    # The holder is host:boot:pid:start; only the host is shown.
    return CoordinatorStatus(
        name=row.name, host=row.holder.split(":", 1)[0], last_seen_at=row.last_seen_at, is_alive=fresh
    )
