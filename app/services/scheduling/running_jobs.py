"""Running jobs as input of the planner: their devices, the cost of preemption, and their expected end."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.resources import request_of
from app.domain.scheduling.roles.held import held_on
from app.domain.spec.model import JobDocument, SchedulingConfig
from app.domain.units import WHOLE
from app.models import Attempt, Checkpoint, Device, Job, Lease, Reservation, Shard
from app.models.base import utc_now
from app.services.scheduling.preemption import PREEMPTIBLE

# Assumed storage throughput, to estimate the time to save a checkpoint as large as the last one.
SAVED_BYTES_PER_SECOND = 200e6
# When a job without checkpoints has stored its newest shard.
_STORED_AT = select(func.max(Shard.created_at)).where(Shard.job_id == Job.id).correlate(Job).scalar_subquery()


def running(session: Session) -> list[Running]:
    """Every attempt that holds devices, one entry per node."""
    devices: dict[tuple[str, int], dict[str, set[int]]] = {}
    held = select(Reservation.job_id, Reservation.attempt, Reservation.node, Reservation.device_index)
    for row in session.execute(held):
        devices.setdefault((row.job_id, row.attempt), {}).setdefault(row.node, set()).add(row.device_index)
    rows = session.execute(
        select(
            Lease.node,
            Lease.attempt,
            Lease.ran_seconds,
            Job.id,
            Job.project,
            Job.queue,
            Job.priority,
            Job.status,
            Job.spec,
            Job.requested,
            Job.eta_seconds,
            Job.elapsed_seconds,
            Job.max_runtime_seconds,
            Attempt.device_type,
            Attempt.device_share,
            Attempt.instances,
            Attempt.trained_at,
            func.coalesce(Checkpoint.created_at, _STORED_AT).label("saved_at"),
            Checkpoint.size_bytes,
        )
        .join(Job, Job.id == Lease.job_id)
        .join(Attempt, (Attempt.job_id == Lease.job_id) & (Attempt.number == Lease.attempt))
        .outerjoin(Checkpoint, Checkpoint.id == Job.latest_checkpoint_id)
        .where(Lease.released_at.is_(None))
    ).all()
    now, cpu_slots = utc_now(), _cpu_slots(session) if any(row.instances for row in rows) else set()
    return [_of(row, devices.get((row.id, row.attempt), {}), now, cpu_slots) for row in rows]


def _cpu_slots(session: Session) -> set[tuple[str, int]]:
    slots = select(Device.node, Device.index).where(Device.type == "cpu")
    return {(node, index) for node, index in session.execute(slots)}


def live(session: Session) -> set[tuple[str, int]]:
    """(job, attempt) of all attempts that hold devices."""
    rows = session.execute(select(Lease.job_id, Lease.attempt).where(Lease.released_at.is_(None)))
    return {(row.job_id, row.attempt) for row in rows}


def _of(row: Row[Any], held: Mapping[str, set[int]], now: datetime, cpu_slots: Collection[tuple[str, int]]) -> Running:
    """The attempt on one node; preempting it there ends it everywhere, so the loss is that of all its parts."""
    devices, everywhere = frozenset(held.get(row.node, ())), sum(map(len, held.values()))
    document = JobDocument.from_json(row.spec)
    kind, by_kind, counted = "cpu" if row.device_type == "cpu" else "cuda", {}, everywhere
    if row.instances:
        by_kind = _by_kind(held, cpu_slots)
        kind = "cpu" if all((row.node, index) in cpu_slots for index in devices) else "cuda"
        counted = round(by_kind.get(kind, 0))
    return Running(
        job_id=row.id,
        attempt=row.attempt,
        project=row.project,
        queue=row.queue,
        node=row.node,
        priority=row.priority,
        kind=kind,
        by_kind=by_kind,
        devices=devices,
        share=row.device_share,
        elsewhere=max(0, counted - len(devices)) * row.device_share / WHOLE,
        quantities=held_on(row.node, request_of(document, has_gpus=False), row.instances),
        is_preemptible=document.scheduling_config.preemptible,
        may_be_preempted=_may_be_preempted(row, document.scheduling_config),
        is_stopping=row.requested is not None or row.status == JobState.EXPORTING,
        loss=_loss(row, now) * everywhere * row.device_share / WHOLE,
        ends_in=_ends_in(row),
    )


def _by_kind(held: Mapping[str, set[int]], cpu_slots: Collection[tuple[str, int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for node, indices in held.items():
        for index in indices:
            kind = "cpu" if (node, index) in cpu_slots else "cuda"
            found[kind] = found.get(kind, 0) + 1
    return found


def _may_be_preempted(row: Row[Any], scheduling: SchedulingConfig) -> bool:
    has_run = row.ran_seconds >= scheduling.min_runtime_seconds
    return scheduling.preemptible and has_run and JobState(row.status) in PREEMPTIBLE


def _loss(row: Row[Any], now: datetime) -> float:
    """Seconds since the last checkpoint or the start of training, plus the estimated time to save another one."""
    safe = max((moment for moment in (row.saved_at, row.trained_at) if moment is not None), default=now)
    return max(0.0, (now - safe).total_seconds()) + (row.size_bytes or 0) / SAVED_BYTES_PER_SECOND


def _ends_in(row: Row[Any]) -> float | None:
    known = [row.eta_seconds] if row.eta_seconds is not None else []
    if row.max_runtime_seconds is not None:
        known.append(max(0.0, row.max_runtime_seconds - row.elapsed_seconds - row.ran_seconds))
    return min(known, default=None)
