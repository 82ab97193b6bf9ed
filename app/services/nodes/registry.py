"""The node registry: registration, heartbeats, state, and free capacity."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select, tuple_, update
from sqlalchemy.orm import Session, selectinload

from app.database.engine import Database
from app.domain.errors import NotFound
from app.domain.lifecycle.states import HELD
from app.domain.nodes.limits import limits_of
from app.domain.nodes.sandboxes import why_none
from app.domain.scheduling.resources import NOTHING, UNKNOWN, Device, NodeCapacity, Quantities, request_of
from app.domain.scheduling.roles.held import held_on
from app.domain.spec.model import JobDocument
from app.domain.units import WHOLE
from app.models import Attempt, Job, Lease, Node, Reservation
from app.models import Device as DeviceRow
from app.models.base import database_now, utc_now
from app.services.lifecycle import transitions
from app.services.nodes import reliability, stuck_devices


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """What a node worker reports about its machine when it starts."""

    name: str
    devices: tuple[Device, ...]
    cpu_cores: int
    ram_mb: int
    storage_mb: int
    sandbox: str
    version: str
    boot_id: str
    labels: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict)
    arch: str = ""


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Number of jobs on a node, and the amounts they requested."""

    jobs: int = 0
    held: Quantities = NOTHING


_IDLE = _Work()


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """Heartbeat counter of a node; it is silent when the counter stops rising.

    ``every_seconds``: its own interval, if its node.toml sets one.
    """

    node: str
    counter: int
    is_ready: bool
    every_seconds: float | None = None


def register(db: Database, report: NodeReport) -> str:
    """Register or update the node; returns its state.

    A drained or quarantined node stays so until it is enabled; one with ``auto_accept = false`` starts drained.
    """
    with db.write() as session:
        node = session.get(Node, report.name)
        if node is None:
            node = Node(name=report.name, state="ready" if limits_of(report.limits).auto_accept else "drained")
            session.add(node)
        if node.state == "lost":
            node.state, node.lost_at = "ready", None
        node.labels, node.capabilities = list(report.labels), list(report.capabilities)
        node.cpu_cores, node.ram_mb, node.storage_mb = report.cpu_cores, report.ram_mb, report.storage_mb
        node.sandbox, node.version, node.boot_id = report.sandbox, report.version, report.boot_id
        node.limits, node.arch = report.limits, report.arch
        node.heartbeat = (node.heartbeat or 0) + 1
        node.last_seen_at = utc_now()
        reliability.begin(session, report.name)
        session.flush()
        _sync_devices(session, report)
        return node.state


def heartbeat(db: Database, name: str) -> str:
    """Raise the node's counter; returns its state. A lost node becomes ready, an idle draining one drained."""
    beat = (
        update(Node)
        .where(Node.name == name)
        .values(heartbeat=Node.heartbeat + 1, last_seen_at=utc_now())
        .returning(Node.state)
    )
    with db.query() as connection:
        state: str | None = connection.execute(beat).scalar()
    if state is None:
        raise NotFound(f"node {name} is not registered")
    return _woken(db, name) if state in ("lost", "draining") else state


def _woken(db: Database, name: str) -> str:
    """The state of a lost or draining node after a heartbeat."""
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True)
        if node is None:
            raise NotFound(f"node {name} is not registered")
        if node.state == "lost":
            node.state, node.lost_at = "ready", None
        elif node.state == "draining" and not _holds_anything(session, name):
            node.state = "drained"
        return node.state


def mark_lost(db: Database, name: str, *, heartbeat_seen: int) -> None:
    """Mark a ready node as lost if its counter is unchanged; its leases expire by themselves.

    A draining node keeps its state: it gets no jobs anyway, and its return must not make it ready.
    """
    with db.write() as session:
        seen = (Node.name == name) & (Node.heartbeat == heartbeat_seen) & (Node.state == "ready")
        session.execute(update(Node).where(seen).values(state="lost", lost_at=database_now(session)))


def mark_stopped(db: Database, name: str) -> None:
    """Mark a ready node, whose worker stops and sends no more heartbeats, as lost until a worker registers again.

    Its jobs keep their leases, which their supervisors renew. A draining, drained or quarantined node stays so.
    """
    with db.write() as session:
        ready = (Node.name == name) & (Node.state == "ready")
        session.execute(update(Node).where(ready).values(state="lost", lost_at=database_now(session)))


def heartbeats(db: Database) -> list[Heartbeat]:
    """The heartbeats of all nodes."""
    with db.query() as connection:
        rows = connection.execute(select(Node.name, Node.heartbeat, Node.state, Node.limits))
        return [
            Heartbeat(
                node=row.name,
                counter=row.heartbeat,
                is_ready=row.state == "ready",
                every_seconds=limits_of(row.limits).heartbeat_seconds,
            )
            for row in rows
        ]


def set_state(db: Database, name: str, state: str) -> None:
    """Set one of NODE_STATES. Raises NotFound."""
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True)
        if node is None:
            raise NotFound(f"no node {name}; known: {', '.join(session.scalars(select(Node.name)).all()) or 'none'}")
        node.state, node.lost_at = state, database_now(session) if state == "lost" else None


def forget(db: Database, name: str, *, only_lost: bool = False) -> bool:
    """Delete a node whose worker has ended for good; returns False, and leaves it lost, while attempts still hold it.

    ``only_lost`` keeps nodes that an administrator drained or labelled.
    """
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True)
        if node is None:
            return True
        if only_lost and (node.state != "lost" or node.admin_labels):
            return False
        reserved = select(Reservation.job_id).where(Reservation.node == name).limit(1)
        if _holds_anything(session, name) or session.scalar(reserved) is not None:
            node.state, node.lost_at = "lost", None  # no grace: it does not come back
            return False
        session.delete(node)
        return True


def request_requeue(db: Database, name: str) -> int:
    """Drain the node and request that its running jobs save and requeue; returns how many."""
    with db.write() as session:
        session.execute(update(Node).where(Node.name == name).values(state="draining"))
        return len(request_requeues(session, name))


def request_requeues(session: Session, name: str) -> list[str]:
    """Request that the jobs on the node, which the caller has locked, save and requeue; returns these jobs.

    A pending pause becomes unconditional instead.
    """
    held = select(Lease.job_id).where(Lease.node == name, Lease.released_at.is_(None)).order_by(Lease.job_id)
    asked = []
    for job_id in session.scalars(held).all():
        # Checked under its lock: a concurrently ending attempt must not leave the request on a queued job.
        job = transitions.load_for_change(session, job_id)
        if job.state not in HELD:
            continue
        reason = f"node {name} drains"
        if job.requested is None:
            job.requested, job.requested_reason = "requeue", reason
            job.mark_changed()
            asked.append(job_id)
        elif transitions.force_pause(session, job, actor=name, reason=reason):
            asked.append(job_id)
    return asked


def capacities(
    session: Session, *, only_ready: bool = True, names: Collection[str] | None = None
) -> list[NodeCapacity]:
    """Capacities of all nodes or of ``names``; devices held by attempts or unkillable processes are not free.

    Reservations are read first: an attempt that leaves a process behind releases them as it takes the devices out of
    service, and in the other order the devices could seem free between the two queries.
    """
    query = select(Node).options(selectinload(Node.devices)).order_by(Node.name)
    if only_ready:
        query = query.where(Node.state == "ready")
    if names is not None:
        query = query.where(Node.name.in_(names))
    taken: dict[str, dict[int, int]] = {}
    for (holder, index), share in shares(session, names).items():
        taken.setdefault(holder, {})[index] = share
    tenants: dict[str, dict[int, str]] = {}
    for (holder, index), project in tenants_of(session, names).items():
        tenants.setdefault(holder, {})[index] = project
    stuck = stuck_devices.by_node(session, names)
    working, reputations = _at_work(session, names), reliability.reputations(session, names)
    return [
        _capacity(
            node,
            taken.get(node.name, {}),
            tenants.get(node.name, {}),
            frozenset(stuck.get(node.name, ())),
            working.get(node.name, _IDLE),
            reputations.get(node.name, UNKNOWN),
        )
        for node in session.scalars(query)
    ]


def shares(
    session: Session, names: Collection[str] | None = None, *, devices: Collection[tuple[str, int]] | None = None
) -> dict[tuple[str, int], int]:
    """(node, device) → hundredths held by attempts; for these nodes or devices, or for all."""
    query = select(Reservation.node, Reservation.device_index, func.sum(Reservation.share).label("share"))
    if names is not None:
        query = query.where(Reservation.node.in_(names))
    if devices is not None:
        query = query.where(tuple_(Reservation.node, Reservation.device_index).in_(devices))
    grouped = query.group_by(Reservation.node, Reservation.device_index)
    return {(row.node, row.device_index): int(row.share) for row in session.execute(grouped)}


def tenants_of(
    session: Session, names: Collection[str] | None = None, *, devices: Collection[tuple[str, int]] | None = None
) -> dict[tuple[str, int], str]:
    """(node, device) → the project of the attempts that share it, empty where they are of several; as ``shares``."""
    query = select(Reservation.node, Reservation.device_index, Job.project).where(Reservation.share < WHOLE)
    if names is not None:
        query = query.where(Reservation.node.in_(names))
    if devices is not None:
        query = query.where(tuple_(Reservation.node, Reservation.device_index).in_(devices))
    found: dict[tuple[str, int], str] = {}
    for node, index, project in session.execute(query.join(Job, Job.id == Reservation.job_id).distinct()):
        found[node, index] = project if (node, index) not in found else ""
    return found


def lock_devices(session: Session, devices: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Lock devices until the transaction ends; returns (node, index) of those that exist.

    No unique key limits the sum of several shares. So placement locks the device rows in one order before it reads what
    is allocated: of two planners the second sees what the first has taken.
    """
    index = DeviceRow.index.label("device_index")  # SQLAlchemy rows have a method ``index``
    query = select(DeviceRow.node, index).where(tuple_(DeviceRow.node, DeviceRow.index).in_(devices))
    rows = session.execute(query.order_by(DeviceRow.node, DeviceRow.index).with_for_update())
    return {(row.node, row.device_index) for row in rows}


def list_nodes(session: Session) -> Sequence[Node]:
    return session.scalars(select(Node).options(selectinload(Node.devices)).order_by(Node.name)).all()


def _holds_anything(session: Session, name: str) -> bool:
    held = select(Lease.id).where(Lease.node == name, Lease.released_at.is_(None)).limit(1)
    return session.scalar(held) is not None


def is_limited(node: Node) -> bool:
    """Whether the node limits its number of concurrent jobs."""
    return limits_of(node.limits).max_concurrent is not None


def runs_all_it_may(session: Session, node: Node) -> bool:
    """Whether the node, which the caller has locked, runs its maximum number of jobs."""
    limit = limits_of(node.limits).max_concurrent
    if limit is None:
        return False
    held = select(func.count()).select_from(Lease).where(Lease.node == node.name, Lease.released_at.is_(None))
    return (session.scalar(held) or 0) >= limit


def _at_work(session: Session, names: Collection[str] | None) -> dict[str, _Work]:
    """Jobs with a live lease, by node; devices are counted by reservations instead."""
    found: dict[str, _Work] = {}
    columns = Lease.node, Lease.job_id, Lease.attempt, Job.spec
    query = select(*columns).join(Job, Job.id == Lease.job_id).where(Lease.released_at.is_(None))
    if names is not None:
        query = query.where(Lease.node.in_(names))
    for node, job_id, attempt, spec in session.execute(query):
        known, request = found.get(node, _IDLE), request_of(JobDocument.from_json(spec), has_gpus=False)
        asked = held_on(node, request, _instances(session, job_id, attempt) if request.roles else None)
        found[node] = _Work(jobs=known.jobs + 1, held=known.held if asked == NOTHING else known.held + asked)
    return found


def _instances(session: Session, job_id: str, attempt: int) -> list[Any] | None:
    placed = select(Attempt.instances).where(Attempt.job_id == job_id, Attempt.number == attempt)
    return session.scalar(placed)


def _capacity(
    node: Node, taken: dict[int, int], tenants: dict[int, str], stuck: frozenset[int], work: _Work, reputation: float
) -> NodeCapacity:
    devices = tuple(
        Device(
            index=d.index,
            type=d.type,
            memory_mb=d.memory_mb,
            simulated=d.simulated,
            uuid=d.uuid,
            link_group=d.link_group,
        )
        for d in node.devices
    )
    limits, no_sandbox = limits_of(node.limits), why_none(node.sandbox)
    if no_sandbox:
        stuck = frozenset(d.index for d in devices)
    return NodeCapacity(
        name=node.name,
        devices=devices,
        free=frozenset(d.index for d in devices) - taken.keys() - stuck,
        parts={index: share for index, share in taken.items() if share < WHOLE and index not in stuck},
        tenants={} if limits.share_across_projects else tenants,
        mixes_projects=limits.share_across_projects,
        cpu_cores=node.cpu_cores,
        ram_mb=node.ram_mb,
        storage_mb=node.storage_mb,
        held=work.held,
        capabilities=frozenset(node.capabilities),
        labels=frozenset(node.all_labels),
        active_jobs=work.jobs,
        reputation=reputation,
        out_of_service=stuck,
        max_jobs=limits.max_concurrent,
        accepts_training=limits.accept_training,
        accepts_inference=limits.accept_inference,
        arch=node.arch,
        no_sandbox=no_sandbox,
    )


def _sync_devices(session: Session, report: NodeReport) -> None:
    rows = {d.index: d for d in session.scalars(select(DeviceRow).where(DeviceRow.node == report.name))}
    for device in report.devices:
        row = rows.pop(device.index, None)
        if row is None:
            row = DeviceRow(node=report.name, index=device.index)
            session.add(row)
        row.type, row.memory_mb, row.simulated = device.type, device.memory_mb, device.simulated
        row.uuid, row.link_group = device.uuid, device.link_group
    # A device that disappeared but is still held keeps its row; the next start after its attempt removes it.
    held = select(Reservation.device_index).where(Reservation.node == report.name)
    busy = set(session.scalars(held))
    for index, row in rows.items():
        if index not in busy:
            session.delete(row)
