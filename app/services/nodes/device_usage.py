"""What the machines of nodes and their devices do: a sample each minute, kept for a day."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.models import Node, NodeSample
from app.models.base import utc_now
from app.services.nodes import listing

KEPT = timedelta(hours=24)
CURRENT = timedelta(minutes=3)  # an older sample says nothing about now
MINUTES_OF_A_DAY = 24 * 60
_COLUMNS = (NodeSample.node, NodeSample.at, NodeSample.cpu_percent, NodeSample.ram_used_mb, NodeSample.devices)


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """None: the device does not report it. ``utilization`` in percent of the last second or less."""

    index: int
    utilization: float | None
    memory_used_mb: int | None


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """One sample of a node. ``at``: the minute in which it was taken."""

    at: datetime
    cpu_percent: float | None
    ram_used_mb: int | None
    devices: Sequence[DeviceUse]

    def of(self, index: int) -> DeviceUse | None:
        return next((device for device in self.devices if device.index == index), None)


def record(db: Database, name: str, use: NodeUse) -> bool:
    """Store a sample of the node, in place of another one of the same minute; False if the node is not registered."""
    with db.write() as session:
        if session.get(Node, name) is None:
            return False
        insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
        values: dict[str, Any] = {
            "cpu_percent": use.cpu_percent,
            "ram_used_mb": use.ram_used_mb,
            "devices": [[each.index, each.utilization, each.memory_used_mb] for each in use.devices],
        }
        new = insert(NodeSample).values(node=name, at=_minute(use.at), **values)
        session.execute(new.on_conflict_do_update(index_elements=["node", "at"], set_=values))
    return True


def latest(session: Session, names: Collection[str]) -> Mapping[str, NodeUse]:
    """Node → its newest sample; nodes without one of the last minutes are left out."""
    recent = NodeSample.at >= _minute(utc_now() - CURRENT)
    query = select(*_COLUMNS).where(recent, NodeSample.node.in_(names)).order_by(NodeSample.at)
    newest = {row.node: row for row in session.execute(query)}
    return {name: _use(row) for name, row in newest.items()}


def history(session: Session, name: str, *, minutes: int = 60) -> list[NodeUse]:
    """The samples of the last minutes, the oldest first. Raises NotFound for an unknown node."""
    listing.find(session, name)
    since = NodeSample.at > _minute(utc_now() - timedelta(minutes=minutes))
    query = select(*_COLUMNS).where(NodeSample.node == name, since).order_by(NodeSample.at)
    return [_use(row) for row in session.execute(query)]


def drop_old(db: Database) -> None:
    with db.write() as session:
        session.execute(delete(NodeSample).where(NodeSample.at < utc_now() - KEPT))


def _use(row: Row[Any]) -> NodeUse:
    return NodeUse(
        at=row.at,
        cpu_percent=row.cpu_percent,
        ram_used_mb=row.ram_used_mb,
        devices=[DeviceUse(index=each[0], utilization=each[1], memory_used_mb=each[2]) for each in row.devices],
    )


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
