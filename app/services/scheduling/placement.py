"""Writes placements to the database: many per transaction, with all affected rows locked in one order."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import InstrumentedAttribute, Session, load_only

from app.database.engine import Database, is_deadlock
from app.domain.errors import StaleJob
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.nodes.limits import limits_of
from app.domain.nodes.sandboxes import why_none
from app.domain.scheduling.placement import Placement
from app.domain.units import WHOLE
from app.models import Attempt, Job, Lease, Node, Project, Queue, Reservation
from app.models.base import Base, utc_now
from app.models.insertion import insert_now
from app.services.attempts import placed_instances, recovery
from app.services.lifecycle import transitions
from app.services.lifecycle.transitions import Step
from app.services.nodes import project_demands, registry, stuck_devices
from app.services.queues import limits, project_quotas
from app.services.queues.limits import Wait

log = logging.getLogger(__name__)

# Placements per transaction: most of the cost is shared, and other writers of these jobs wait for at most 0.1 seconds.
TOGETHER = 50
# About two seconds of placements.
SOON = 10 * TOGETHER

# Locks are taken in one order, so deadlocks should not occur; if one does, it must not abort the pass.
DEADLOCK_TRIES = 3

# SQLite has no queue for its write lock: other processes poll for it and would starve without this pause.
OTHERS_SECONDS = 0.05

# The columns that starting a job needs, of about seventy.
_READ = (
    *transitions.TRANSITION_COLUMNS,
    Job.requested,
    Job.spec,
    Job.priority,
    Job.created_at,
    Job.queued_at,
    Job.not_before_at,
    Job.current_step,
    Job.total_steps,
    Job.progress,
    Job.latest_checkpoint_id,
    Job.chosen_checkpoint_id,
    Job.resume_checkpoint_id,
)

_Row = TypeVar("_Row", Node, Job, Queue, Project)


@dataclass(frozen=True, kw_only=True)
class Dispatched:
    """A placed attempt, to be announced to its node."""

    job_id: str
    attempt: int
    node: str
    device_type: str
    priority: int


def place_all(
    db: Database, placements: Sequence[Placement], actor: str, announce: Callable[[list[Dispatched]], None]
) -> list[Dispatched]:
    """Place in batches; ``announce`` is called after the commit of each batch."""
    dispatched: list[Dispatched] = []
    ordered = _node_by_node(placements)
    for start in range(0, len(ordered), TOGETHER):
        if start and db.engine.dialect.name == "sqlite":
            time.sleep(OTHERS_SECONDS)
        placed = place(db, ordered[start : start + TOGETHER], actor)
        announce(placed)
        dispatched += placed
    return dispatched


def _node_by_node(placements: Sequence[Placement]) -> list[Placement]:
    """The first batch stays in serving order; later placements are grouped by node within ``SOON`` of them.

    Each transaction then locks few nodes, and each node gets many attempts in one announcement. A job is delayed by at
    most ``SOON`` placements.
    """
    ordered = list(placements[:TOGETHER])
    for start in range(TOGETHER, len(placements), SOON):
        ordered += sorted(placements[start : start + SOON], key=lambda placement: placement.node)
    return ordered


def place(
    db: Database, placements: Sequence[Placement], actor: str, *, tries: int = DEADLOCK_TRIES
) -> list[Dispatched]:
    """Write the placements that are still possible, in one transaction; falls back to single ones on a conflict."""
    try:
        with db.write() as session:
            return apply(session, placements, actor)
    except OperationalError as error:
        if not is_deadlock(error) or tries <= 1:
            raise
        log.warning("placement was aborted by a deadlock and is retried: %s", error)
        return place(db, placements, actor, tries=tries - 1)
    except (IntegrityError, StaleJob):
        # Another planner placed a job or took a device, and unique keys refused ours. Perhaps only one of several
        # placements conflicts; the next pass plans that one again.
        if len(placements) == 1:
            return []
        return [each for placement in placements for each in place(db, [placement], actor)]


def apply(session: Session, placements: Sequence[Placement], actor: str) -> list[Dispatched]:
    """Write placements within a transaction: all parts of each or none; returns one message per part."""
    with session.no_autoflush:  # rows of all placements are inserted together
        locked = _Locked(session, placements, actor)
        dispatched = [each for placement in placements for each in locked.start(placement)]
        locked.close()
    return dispatched


class _Locked:
    """Rows that the placements affect, locked until the transaction ends.

    A concurrent drain of a node either sees these attempts or is seen here; and of two planners that start the last
    job a node may run (max_concurrent), the second sees the lease of the first. Nodes are locked before jobs, as in a
    drain, and rows of one table in the order of their keys.
    """

    def __init__(self, session: Session, placements: Sequence[Placement], actor: str) -> None:
        self._session, self._actor = session, actor
        names = {part.node for placement in placements for part in placement.parts}
        devices = {key for placement in placements for key in _devices(placement)}
        self._nodes = _lock(session, Node, Node.name, names, key_share=True)
        wanted = {placement.job_id for placement in placements}
        self._jobs = _lock(session, Job, Job.id, wanted, key_share=False, columns=_READ)
        self._queues = _lock(session, Queue, Queue.name, {job.queue for job in self._jobs.values()}, key_share=True)
        projects = {job.project for job in self._jobs.values()}
        self._projects = _lock(session, Project, Project.name, projects, key_share=True)
        self._devices = registry.lock_devices(session, devices)
        self._given = registry.shares(session, devices=devices)
        shared = {key for placement in placements if placement.share < WHOLE for key in _devices(placement)}
        self._tenants = registry.tenants_of(session, devices=shared) if shared else {}
        self._stuck = stuck_devices.on(session, names)
        self._waits: list[Wait] = []
        self._steps: list[Step] = []  # decided, and not yet written
        self._held: list[tuple[Job, Placement]] = []

    def start(self, placement: Placement) -> list[Dispatched]:
        job, names = self._jobs.get(placement.job_id), [part.node for part in placement.parts]
        if job is None or job.state is not JobState.QUEUED or job.requested is not None:
            return []
        if not all(self._is_open(name) for name in names) or not self._has_room(job.project, placement):
            return []  # drained, taken or found stuck since the snapshot
        if not self._queue_is_open(self._queues[job.queue]) or not self._is_within(job, placement):
            return []  # paused or filled since the snapshot
        number, now = job.attempt + 1, utc_now()
        self._waits.append(limits.wait_of(job, now))
        changes = {
            "attempt": number,
            "node_names": names,
            "pending_reason": "",
            "not_before_at": None,
            "awaits_node": "",
            **recovery.where_it_starts(self._session, job),
        }
        self._steps.append(Step(job=job, message=f"attempt {number} on {', '.join(names)}", changes=changes))
        self._held.append((job, placement))
        for key in _devices(placement):
            self._given[key] = self._given.get(key, 0) + placement.share
            self._tenants[key] = job.project
        return [
            Dispatched(
                job_id=job.id, attempt=number, node=part.node, device_type=part.devices[0].type, priority=job.priority
            )
            for part in placement.parts
        ]

    def close(self) -> None:
        self._write()
        limits.count_waits(self._session, self._waits)
        self._session.flush()

    def _write(self) -> None:
        """Write the decisions so far, so that queries count them."""
        if not self._steps:
            return
        steps, held = self._steps, self._held
        self._steps, self._held = [], []
        transitions.transition_all(self._session, steps, JobState.SCHEDULING, actor=self._actor)
        insert_now(self._session, _rows(held))

    def _is_open(self, name: str) -> bool:
        node = self._nodes.get(name)
        if node is None or node.state != "ready" or why_none(node.sandbox):
            return False
        if registry.is_limited(node):
            self._write()
        return not registry.runs_all_it_may(self._session, node)

    def _has_room(self, project: str, placement: Placement) -> bool:
        return all(
            key in self._devices
            and key not in self._stuck
            and self._given.get(key, 0) + placement.share <= WHOLE
            and (self._tenants.get(key, project) == project or self._mixes_projects(key[0]))
            for key in _devices(placement)
        )

    def _mixes_projects(self, node: str) -> bool:
        return limits_of(self._nodes[node].limits).share_across_projects

    def _queue_is_open(self, queue: Queue) -> bool:
        if queue.max_running_jobs is not None:
            self._write()
        return limits.is_open(self._session, queue)

    def _is_within(self, job: Job, placement: Placement) -> bool:
        project = self._projects[job.project]
        demanded = project_demands.demanded(project.quota)
        if any(not demanded.issubset(self._nodes[part.node].capabilities) for part in placement.parts):
            return False  # demanded since the plan was made, which the next one knows
        if project.quota:
            self._write()
        return project_quotas.is_open(self._session, project, job, placement.amounts)


def _devices(placement: Placement) -> list[tuple[str, int]]:
    return [(part.node, device.index) for part in placement.parts for device in part.devices]


def _device_type(placement: Placement) -> str:
    """Of instances with several types the first; a GPU's where any has one."""
    devices = [device for part in placement.parts for device in part.devices]
    return next((device for device in devices if not device.is_cpu), devices[0]).type


def _rows(held: Sequence[tuple[Job, Placement]]) -> list[Base]:
    """The attempts, with a lease and the device reservations of each part."""
    attempts, leases, reservations, now = [], [], [], utc_now()
    for job, placement in held:
        names = [part.node for part in placement.parts]
        attempts.append(
            Attempt(
                job_id=job.id,
                number=job.attempt,
                fence=job.fence,
                node_names=names,
                device_indices=[[device.index for device in part.devices] for part in placement.parts],
                device_type=_device_type(placement),
                device_share=placement.share,
                instances=placed_instances.of(job.document, placement) if placement.instances else None,
                announced_at=now,
                start_type=recovery.SCHEDULED,
                start_step=job.current_step,
            )
        )
        of_job = {"job_id": job.id, "attempt": job.attempt}
        leases += [
            Lease(id=new_id("lease"), node=name, fence=job.fence, part=part, created_at=now, **of_job)
            for part, name in enumerate(names)
        ]
        reservations += [
            Reservation(node=name, device_index=index, share=placement.share, **of_job)
            for name, index in _devices(placement)
        ]
    return [*attempts, *leases, *reservations]


def _lock(
    session: Session,
    entity: type[_Row],
    key: InstrumentedAttribute[str],
    values: Collection[str],
    *,
    key_share: bool,
    columns: Sequence[InstrumentedAttribute[Any]] = (),
) -> dict[str, _Row]:
    """Lock rows by key; only ``columns`` are loaded, if given."""
    query = select(entity).where(key.in_(values)).order_by(key).with_for_update(key_share=key_share)
    if columns:
        query = query.options(load_only(*columns))
    rows = session.scalars(query.execution_options(populate_existing=True))
    return {getattr(row, key.key): row for row in rows}
