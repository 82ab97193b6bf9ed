"""Nodes as people see them: with their devices, and which of those are in use."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from app.domain.errors import NotFound
from app.models import Device, Node, Reservation
from app.services.pages import Orders, Page, PageRequest, page_of

ORDERS: Orders = {
    "created_at": (Node.registered_at, Node.name),
    "name": (Node.name,),
    "status": (Node.state, Node.name),
}


@dataclass(frozen=True, kw_only=True)
class DeviceDetails:
    device: Device
    in_use: bool


@dataclass(frozen=True, kw_only=True)
class NodeDetails:
    node: Node
    devices: Sequence[DeviceDetails]


def page(session: Session, request: PageRequest) -> Page[NodeDetails]:
    found = page_of(session, select(Node).options(selectinload(Node.devices)), ORDERS, request)
    return Page(
        items=_details(session, found.items), next_after=found.next_after, total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )  # fmt: skip


def find(session: Session, name: str) -> NodeDetails:
    node = session.get(Node, name)
    if node is None:
        raise NotFound(f"no node {name[:63]!r}")
    return _details(session, [node])[0]


def _details(session: Session, nodes: Sequence[Node]) -> list[NodeDetails]:
    names = [node.name for node in nodes]
    held = session.execute(select(Reservation.node, Reservation.device_index).where(Reservation.node.in_(names)))
    busy = {(row.node, row.device_index) for row in held}
    return [
        NodeDetails(
            node=node,
            devices=[DeviceDetails(device=d, in_use=(node.name, d.index) in busy) for d in node.devices],
        )
        for node in nodes
    ]
