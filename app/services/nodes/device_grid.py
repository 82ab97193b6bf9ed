"""Every device with who uses it and what it does, for people: of a page of nodes, or added up by type."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy import Select, Subquery, func, select
from sqlalchemy.orm import Session

from app.domain.units import WHOLE
from app.models import Device, Job, Node, Reservation, StuckDevice
from app.security.permissions import Caller
from app.services.nodes import device_usage, listing
from app.services.nodes.device_usage import DeviceUse, NodeUse
from app.services.nodes.listing import DeviceDetails, NodeDetails
from app.services.requests.pagination import Page, PageRequest

FREE, USED, PART, OUT = "free", "used", "part", "out"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """An attempt that uses a device; project and job are None when they are of a project that the caller can't see."""

    project: str | None
    job_id: str | None
    job_name: str | None
    share: float


@dataclass(frozen=True, kw_only=True)
class DeviceSeen:
    details: DeviceDetails
    holders: Sequence[Holder]
    use: DeviceUse | None  # None: no sample of the last minutes

    @property
    def state(self) -> str:
        """FREE, USED wholly, PART of it used, or OUT of service."""
        if self.details.out_of_service_reason:
            return OUT
        if not self.details.in_use:
            return FREE
        return USED if self.details.share_in_use >= 1 else PART

    @property
    def projects(self) -> list[str | None]:
        return list(dict.fromkeys(holder.project for holder in self.holders))

    @property
    def memory_part(self) -> float | None:
        """Used memory, as a fraction of the device's; None if either is not known."""
        total = self.details.device.memory_mb
        if self.use is None or self.use.memory_used_mb is None or not total:
            return None
        return min(1.0, self.use.memory_used_mb / total)

    @property
    def busy_part(self) -> float | None:
        return None if self.use is None or self.use.utilization is None else self.use.utilization / 100


@dataclass(frozen=True, kw_only=True)
class NodeSeen:
    details: NodeDetails
    devices: Sequence[DeviceSeen]
    use: NodeUse | None


@dataclass(frozen=True, kw_only=True)
class TypeSum:
    """Devices of a type: ``free`` on ready nodes, ``idle`` on others."""

    type: str
    total: int
    used: int
    part: int
    out: int
    free: int
    idle: int


@dataclass(frozen=True, kw_only=True)
class NodeSum:
    """The devices of a node. ``busy``, ``memory``: the mean of what they have reported of late, as fractions."""

    name: str
    state: str
    total: int
    used: int
    part: int
    out: int
    free: int
    busy: float | None = None
    memory: float | None = None


def page(session: Session, caller: Caller, request: PageRequest) -> Page[NodeSeen]:
    found = listing.page(session, request)
    return Page(
        items=_seen(session, caller, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def find(session: Session, caller: Caller, name: str) -> NodeSeen:
    """Raises NotFound."""
    return _seen(session, caller, [listing.find(session, name)])[0]


def by_state(session: Session) -> dict[str, int]:
    """State of nodes → number of them."""
    rows = session.execute(select(Node.state, func.count().label("number")).group_by(Node.state))
    return {row.state: row.number for row in rows}


def by_type(session: Session) -> list[TypeSum]:
    """The devices of all nodes, added up by queries that return few rows however many there are."""
    found = _counts(session, _each_device().subquery(), "type")
    return [TypeSum(type=name, **counts) for name, counts in found.items()]


def by_node(session: Session, *, most: int, with_use: bool) -> list[NodeSum]:
    """The first nodes by name, each with its devices added up; ``with_use``: and with what those do."""
    rows = session.execute(select(Node.name, Node.state).order_by(Node.name).limit(most))
    states = {name: state for name, state in rows}  # noqa: C416 – of rows, a dict() would not be typed
    devices = _each_device().where(Device.node.in_(select(Node.name).order_by(Node.name).limit(most))).subquery()
    counts = _counts(session, devices, "node")
    uses = _mean_uses(session, [*states]) if with_use else {}
    nothing = dict.fromkeys(_KINDS, 0)
    sums = []
    for name, state in states.items():
        found = dict(counts.get(name, nothing))
        found["free"] += found.pop("idle")
        busy, memory = uses.get(name, (None, None))
        sums.append(NodeSum(name=name, state=state, busy=busy, memory=memory, **found))
    return sums


_KINDS = ("total", "used", "part", "out", "free", "idle")


def _each_device() -> Select[Any]:
    """A row for each device: how much of it is reserved, and whether it is out of service."""
    place = (Reservation.node == Device.node) & (Reservation.device_index == Device.index)
    share = select(func.sum(Reservation.share)).where(place).correlate(Device).scalar_subquery()
    stuck = (
        select(func.count())
        .where(StuckDevice.node == Device.node, StuckDevice.device_index == Device.index)
        .correlate(Device)
        .scalar_subquery()
    )
    return select(
        Device.type.label("type"),
        Device.node.label("node"),
        (Node.state == "ready").label("is_ready"),
        func.coalesce(share, 0).label("share"),
        stuck.label("stuck"),
    ).join(Node, Node.name == Device.node)


def _counts(session: Session, devices: Subquery, by: str) -> dict[str, dict[str, int]]:
    """What they are added up by → kind → number of devices."""
    alike = devices.c[by], devices.c.is_ready, devices.c.share, devices.c.stuck
    rows = session.execute(select(*alike, func.count()).group_by(*alike).order_by(devices.c[by]))
    sums: dict[str, dict[str, int]] = {}
    for name, is_ready, share, stuck, number in rows:
        counts = sums.setdefault(name, dict.fromkeys(_KINDS, 0))
        counts["total"] += number
        counts[_kind(share, stuck, is_ready=is_ready)] += number
    return sums


def _mean_uses(session: Session, names: Collection[str]) -> dict[str, tuple[float | None, float | None]]:
    """Node → how busy its devices are, and how full their memory, on average of those with a sample."""
    rows = session.execute(select(Device.node, Device.index, Device.memory_mb))
    sizes = {(node, index): size for node, index, size in rows}
    found = {}
    for name, sample in device_usage.latest(session, names).items():
        busy = [use.utilization / 100 for use in sample.devices if use.utilization is not None]
        full = [
            min(1.0, use.memory_used_mb / size)
            for use in sample.devices
            if use.memory_used_mb is not None and (size := sizes.get((name, use.index), 0))
        ]
        found[name] = (fmean(busy) if busy else None, fmean(full) if full else None)
    return found


def _kind(share: int, stuck: int, *, is_ready: bool) -> str:
    if stuck:
        return OUT
    if share:
        return USED if share >= WHOLE else PART
    return FREE if is_ready else "idle"


def _seen(session: Session, caller: Caller, nodes: Sequence[NodeDetails]) -> list[NodeSeen]:
    names = [each.node.name for each in nodes]
    holders, samples = _holders(session, caller, names), device_usage.latest(session, names)
    return [
        NodeSeen(
            details=each,
            devices=[
                DeviceSeen(
                    details=device,
                    holders=holders.get((each.node.name, device.device.index), ()),
                    use=sample.of(device.device.index) if sample is not None else None,
                )
                for device in each.devices
            ],
            use=sample,
        )
        for each in nodes
        for sample in (samples.get(each.node.name),)
    ]


def _holders(session: Session, caller: Caller, names: Collection[str]) -> Mapping[tuple[str, int], list[Holder]]:
    query = (
        select(
            Reservation.node,
            Reservation.device_index,
            Reservation.share,
            Job.id.label("job_id"),
            Job.name.label("job_name"),
            Job.project,
        )
        .join(Job, Job.id == Reservation.job_id)
        .where(Reservation.node.in_(names))
        .order_by(Job.id)
    )
    found: dict[tuple[str, int], list[Holder]] = {}
    for row in session.execute(query):
        sees = caller.sees(row.project)
        holder = Holder(
            project=row.project if sees else None,
            job_id=row.job_id if sees else None,
            job_name=row.job_name if sees else None,
            share=row.share / WHOLE,
        )
        found.setdefault((row.node, row.device_index), []).append(holder)
    return found
