"""Nodes, their devices, and the devices reserved by attempts."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    text,
    true,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from app.domain.units import WHOLE
from app.models.base import ID, Base, utc_now

NODE_STATES = ("ready", "draining", "drained", "quarantined", "lost")


class Node(Base):
    __tablename__ = "node"
    __table_args__ = (
        CheckConstraint("state IN ('ready', 'draining', 'drained', 'quarantined', 'lost')", name="known_state"),
    )

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    state: Mapped[str] = mapped_column(String(16), default="ready")
    quarantine_reason: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))  # until it is enabled
    labels: Mapped[list[str]] = mapped_column(default=list)  # from node.toml; see all_labels
    admin_labels: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    capabilities: Mapped[list[str]] = mapped_column(default=list)
    cpu_cores: Mapped[int] = mapped_column(default=0)
    ram_mb: Mapped[int] = mapped_column(default=0)
    storage_mb: Mapped[int] = mapped_column(default=0)
    limits: Mapped[dict[str, Any]] = mapped_column(default=dict)  # the [jobs] table of node.toml
    sandbox: Mapped[str] = mapped_column(String(16), default="")
    version: Mapped[str] = mapped_column(String(32), default="")
    arch: Mapped[str] = mapped_column(String(32), default="", server_default=text("''"))  # as reported by `uname -m`
    boot_id: Mapped[str] = mapped_column(String(64), default="")
    heartbeat: Mapped[int] = mapped_column(default=0)  # incremented by every heartbeat; a stalled one means lost
    registered_at: Mapped[datetime] = mapped_column(default=utc_now)
    last_seen_at: Mapped[datetime] = mapped_column(default=utc_now)  # shown to people; nothing is decided by it

    lost_at: Mapped[datetime | None]  # by the database's clock; None also for nodes that were lost before it was kept

    devices: Mapped[list["Device"]] = relationship(order_by="Device.index", cascade="all, delete-orphan")

    @property
    def all_labels(self) -> list[str]:
        """The labels of node.toml and of administrators, by which jobs select nodes."""
        return list(dict.fromkeys([*self.labels, *self.admin_labels]))


class NodeRecord(Base):
    """Outcomes of the attempts of a node; it outlives the node's row, so that a returning node keeps its history.

    A separate table for lock order: an attempt ends with its job locked, and a drain locks the node before the job.
    """

    __tablename__ = "node_record"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    reputation: Mapped[float] = mapped_column(default=1.0)  # `resources.UNKNOWN`: it never failed
    completions: Mapped[int] = mapped_column(BigInteger, default=0)
    disconnects: Mapped[int] = mapped_column(BigInteger, default=0)
    faults: Mapped[int] = mapped_column(BigInteger, default=0)


class NodeFault(Base):
    """A failure of an attempt attributed to its node, certainly or possibly; too many of them quarantine the node.

    No foreign keys: it outlives the rows of its job and node, and writing it must not lock them. Only ``is_proven``
    faults count; a fault that the job may have caused is proven when the job gets further on another node.
    """

    __tablename__ = "node_fault"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    job_id: Mapped[str] = mapped_column(ID, primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cause: Mapped[str] = mapped_column(String(32))
    at: Mapped[datetime]
    is_proven: Mapped[bool] = mapped_column(default=True, server_default=true())


class Device(Base):
    __tablename__ = "device"

    node: Mapped[str] = mapped_column(ForeignKey("node.name", ondelete="CASCADE"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str] = mapped_column(String(64))
    memory_mb: Mapped[int] = mapped_column(default=0)
    simulated: Mapped[bool] = mapped_column(default=False)
    uuid: Mapped[str] = mapped_column(String(64), default="", server_default=text("''"))  # of a MIG slice
    link_group: Mapped[int | None]


class CachedSource(Base):
    """A model or data set with files in a node's cache, identified by ``data_locality.source_key``."""

    __tablename__ = "cached_source"

    source: Mapped[str] = mapped_column(String(32), primary_key=True)
    node: Mapped[str] = mapped_column(ForeignKey("node.name", ondelete="CASCADE"), primary_key=True, index=True)
    held_bytes: Mapped[int] = mapped_column(BigInteger)
    size_bytes: Mapped[int] = mapped_column(BigInteger)


class Reservation(Base):
    """A device, or a share of one, allocated to an attempt.

    A unique index prevents allocating a whole device twice; a lock on the device's row keeps the sum of shares within
    the whole (docs/decisions/0022).
    """

    __tablename__ = "reservation"
    __table_args__ = (
        ForeignKeyConstraint(["node", "device_index"], ["device.node", "device.index"]),
        CheckConstraint("share BETWEEN 1 AND 100", name="part_of_a_device"),
        Index(
            "uq_reservation_whole_device",
            "node",
            "device_index",
            unique=True,
            postgresql_where=text("share = 100"),
            sqlite_where=text("share = 100"),
        ),
    )

    node: Mapped[str] = mapped_column(primary_key=True)
    device_index: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True, index=True)
    attempt: Mapped[int]
    share: Mapped[int] = mapped_column(default=WHOLE, server_default=text("100"))  # percent of the device


class StuckDevice(Base):
    """A device that an unkillable process of an ended attempt may still use, so that it is not allocated.

    One row per attempt and device; no foreign keys, because it outlives the rows of its job and node.
    """

    __tablename__ = "stuck_device"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    device_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(ID, primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[str] = mapped_column(String(64), default="")  # boot id and PID namespace of the process
    since: Mapped[datetime]
    seen_at: Mapped[datetime]  # when its node last saw the process
    is_told: Mapped[bool] = mapped_column(default=False)  # whether an event was written to the job's history


class NodeSample(Base):
    """What a node's machine and devices did in one minute; kept for a day.

    ``devices`` has [index, utilization in percent, memory used in MiB] of each device that reports; both may be null.
    """

    __tablename__ = "node_sample"

    node: Mapped[str] = mapped_column(ForeignKey("node.name", ondelete="CASCADE"), primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True, index=True)  # the beginning of the minute
    cpu_percent: Mapped[float | None] = mapped_column(Double)
    ram_used_mb: Mapped[int | None]
    devices: Mapped[list[Any]] = mapped_column(default=list)
