"""Nodes: what they have, whether they live, and which of their devices are free."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session, selectinload

from app.domain.errors import NotFound
from app.domain.job_state import HELD
from app.domain.resources import NOTHING, Device, NodeCapacity, Quantities, request_of
from app.extensions import Database
from app.models import Device as DeviceRow
from app.models import Job, Lease, Node, Reservation
from app.models.base import utc_now
from app.services import lifecycle


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """What a node worker says about its machine when it starts."""

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


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """How far a node has counted; standing still means that it is silent."""

    node: str
    counter: int
    is_ready: bool


def register(db: Database, report: NodeReport) -> None:
    """Make the node known, or bring it up to date. A drained node stays drained until somebody enables it."""
    with db.write() as session:
        node = session.get(Node, report.name)
        if node is None:
            node = Node(name=report.name, state="ready")
            session.add(node)
        if node.state == "lost":
            node.state = "ready"
        node.labels, node.capabilities = list(report.labels), list(report.capabilities)
        node.cpu_cores, node.ram_mb, node.storage_mb = report.cpu_cores, report.ram_mb, report.storage_mb
        node.sandbox, node.version, node.boot_id = report.sandbox, report.version, report.boot_id
        node.limits = report.limits
        node.heartbeat = (node.heartbeat or 0) + 1
        node.last_seen_at = utc_now()
        session.flush()
        _sync_devices(session, report)


def heartbeat(db: Database, name: str) -> str:
    """Raise the node's counter; returns its state. A lost one is ready again, a draining one without work drained."""
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True)
        if node is None:
            raise NotFound(f"node {name} is not registered")
        node.heartbeat += 1
        node.last_seen_at = utc_now()
        if node.state == "lost":
            node.state = "ready"
        elif node.state == "draining" and not _holds_anything(session, name):
            node.state = "drained"
        return node.state


def mark_lost(db: Database, name: str, *, heartbeat_seen: int) -> None:
    """Give up a ready node whose counter still is the one seen; its leases run out by themselves.

    One that drains keeps that state: it gets no work anyway, and coming back must not make it ready.
    """
    with db.write() as session:
        seen = (Node.name == name) & (Node.heartbeat == heartbeat_seen) & (Node.state == "ready")
        session.execute(update(Node).where(seen).values(state="lost"))


def heartbeats(db: Database) -> list[Heartbeat]:
    """The counter of every node."""
    with db.read() as session:
        rows = session.execute(select(Node.name, Node.heartbeat, Node.state))
        return [Heartbeat(node=row.name, counter=row.heartbeat, is_ready=row.state == "ready") for row in rows]


def set_state(db: Database, name: str, state: str) -> None:
    """Ready, draining or drained, as an administrator wishes. Raises NotFound."""
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True)
        if node is None:
            raise NotFound(f"no node {name}; known: {', '.join(session.scalars(select(Node.name)).all()) or 'none'}")
        node.state = state


def request_requeue(db: Database, name: str) -> int:
    """Take no new jobs on the node and ask its running ones to save and go back to the queue; returns how many."""
    with db.write() as session:
        session.execute(update(Node).where(Node.name == name).values(state="draining"))
        return len(ask_requeue(session, name))


def ask_requeue(session: Session, name: str) -> list[str]:
    """The jobs that hold devices of the node and are asked herewith to save and go back; the caller has locked it."""
    held = select(Lease.job_id).where(Lease.node == name, Lease.released_at.is_(None)).order_by(Lease.job_id)
    asked = []
    for job_id in session.scalars(held).all():
        # Looked at under its lock: an attempt that ends at this moment must not leave the wish on a queued job.
        job = lifecycle.load_for_change(session, job_id)
        if job.state in HELD and job.requested is None:
            job.requested, job.requested_reason = "requeue", f"node {name} drains"
            job.version += 1
            asked.append(job_id)
    return asked


def capacities(session: Session, *, only_ready: bool = True) -> list[NodeCapacity]:
    """Every node with its devices and which of them no attempt holds."""
    query = select(Node).options(selectinload(Node.devices)).order_by(Node.name)
    if only_ready:
        query = query.where(Node.state == "ready")
    taken: dict[str, set[int]] = {}
    for row in session.execute(select(Reservation.node, Reservation.device_index)):
        taken.setdefault(row.node, set()).add(row.device_index)
    held = _held_quantities(session)
    return [
        _capacity(node, taken.get(node.name, set()), held.get(node.name, NOTHING)) for node in session.scalars(query)
    ]


def list_nodes(session: Session) -> Sequence[Node]:
    return session.scalars(select(Node).options(selectinload(Node.devices)).order_by(Node.name)).all()


def has_gpus(session: Session) -> bool:
    return session.scalar(select(DeviceRow.node).where(DeviceRow.type != "cpu").limit(1)) is not None


def _holds_anything(session: Session, name: str) -> bool:
    held = select(Lease.id).where(Lease.node == name, Lease.released_at.is_(None)).limit(1)
    return session.scalar(held) is not None


def _held_quantities(session: Session) -> dict[str, Quantities]:
    """What the jobs that hold a lease asked for, by node; devices are counted by their reservations."""
    held: dict[str, Quantities] = {}
    rows = session.execute(
        select(Lease.node, Job.spec).join(Job, Job.id == Lease.job_id).where(Lease.released_at.is_(None))
    )
    for node, spec in rows:
        asked = request_of(spec, has_gpus=False).quantities
        if asked != NOTHING:
            held[node] = held.get(node, NOTHING) + asked
    return held


def _capacity(node: Node, taken: set[int], held: Quantities) -> NodeCapacity:
    devices = tuple(
        Device(index=d.index, type=d.type, memory_mb=d.memory_mb, simulated=d.simulated) for d in node.devices
    )
    return NodeCapacity(
        name=node.name, devices=devices, free=frozenset(d.index for d in devices) - taken, cpu_cores=node.cpu_cores,
        ram_mb=node.ram_mb, storage_mb=node.storage_mb, held=held, capabilities=frozenset(node.capabilities),
    )  # fmt: skip


def _sync_devices(session: Session, report: NodeReport) -> None:
    rows = {d.index: d for d in session.scalars(select(DeviceRow).where(DeviceRow.node == report.name))}
    for device in report.devices:
        row = rows.pop(device.index, None)
        if row is None:
            row = DeviceRow(node=report.name, index=device.index)
            session.add(row)
        row.type, row.memory_mb, row.simulated = device.type, device.memory_mb, device.simulated
    # A device that is gone but still held keeps its row until its attempt has ended; the next start removes it.
    held = select(Reservation.device_index).where(Reservation.node == report.name)
    busy = set(session.scalars(held))
    for index, row in rows.items():
        if index not in busy:
            session.delete(row)
