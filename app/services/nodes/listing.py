"""Listing of nodes, with their devices and which of those are in use."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session, selectinload

from app.domain.scheduling.resources import UNKNOWN
from app.domain.units import WHOLE
from app.models import Device, Lease, Node, StuckDevice
from app.services.nodes import registry, reliability, stuck_devices
from app.services.nodes.unknown import no_node
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

ORDERS: Orders = {
    "created_at": (Node.registered_at, Node.name),
    "name": (Node.name,),
    "status": (Node.state, Node.name),
}


@dataclass(frozen=True, kw_only=True)
class DeviceDetails:
    device: Device
    share_in_use: float  # fraction held by attempts
    out_of_service_reason: str = ""  # why it is not allocated

    @property
    def in_use(self) -> bool:
        return self.share_in_use > 0


@dataclass(frozen=True, kw_only=True)
class NodeDetails:
    node: Node
    devices: Sequence[DeviceDetails]
    active_jobs: int
    reputation: float


def page(session: Session, request: PageRequest) -> Page[NodeDetails]:
    found = page_of(session, select(Node).options(selectinload(Node.devices)), ORDERS, request)
    return Page(
        items=_details(session, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def find(session: Session, name: str) -> NodeDetails:
    node = session.get(Node, name)
    if node is None:
        raise no_node(session, name)
    return _details(session, [node])[0]


def _details(session: Session, rows: Sequence[Node]) -> list[NodeDetails]:
    names = [node.name for node in rows]
    held = registry.shares(session, names)
    working = select(Lease.node, func.count()).where(Lease.released_at.is_(None), Lease.node.in_(names))
    jobs = {row[0]: row[1] for row in session.execute(working.group_by(Lease.node))}
    stuck = stuck_devices.by_node(session, names)
    reputations = reliability.reputations(session, names)
    return [
        NodeDetails(
            node=node,
            devices=[
                DeviceDetails(
                    device=d,
                    share_in_use=held.get((node.name, d.index), 0) / WHOLE,
                    out_of_service_reason=_reason(stuck.get(node.name, {}).get(d.index)),
                )
                for d in node.devices
            ],
            active_jobs=jobs.get(node.name, 0),
            reputation=round(reputations.get(node.name, UNKNOWN), 3),
        )
        for node in rows
    ]


def _reason(stuck: StuckDevice | None) -> str:
    if stuck is None:
        return ""
    return f"held since {stuck.since.isoformat(timespec='seconds')} by an unkillable process"
