"""Machines, their devices, and which attempt holds which device."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from app.models.base import Base, utc_now

NODE_STATES = ("ready", "draining", "drained", "lost")


class Node(Base):
    __tablename__ = "node"
    __table_args__ = (
        CheckConstraint("state IN ('ready', 'draining', 'drained', 'lost')", name="known_state"),
    )  # fmt: skip

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    state: Mapped[str] = mapped_column(String(16), default="ready")
    labels: Mapped[list[Any]] = mapped_column(default=list)
    capabilities: Mapped[list[Any]] = mapped_column(default=list)
    cpu_cores: Mapped[int] = mapped_column(default=0)
    ram_mb: Mapped[int] = mapped_column(default=0)
    storage_mb: Mapped[int] = mapped_column(default=0)
    limits: Mapped[dict[str, Any]] = mapped_column(default=dict)  # the [jobs] table of node.toml
    sandbox: Mapped[str] = mapped_column(String(16), default="")
    version: Mapped[str] = mapped_column(String(32), default="")
    boot_id: Mapped[str] = mapped_column(String(64), default="")
    heartbeat: Mapped[int] = mapped_column(default=0)  # raised by every heartbeat; standing still means lost
    registered_at: Mapped[datetime] = mapped_column(default=utc_now)
    last_seen_at: Mapped[datetime] = mapped_column(default=utc_now)  # shown to people; nothing is decided by it

    devices: Mapped[list["Device"]] = relationship(order_by="Device.index", cascade="all, delete-orphan")


class Device(Base):
    __tablename__ = "device"

    node: Mapped[str] = mapped_column(ForeignKey("node.name", ondelete="CASCADE"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str] = mapped_column(String(64))
    memory_mb: Mapped[int] = mapped_column(default=0)
    simulated: Mapped[bool] = mapped_column(default=False)


class Reservation(Base):
    """A device given to an attempt; the primary key is what makes double booking impossible."""

    __tablename__ = "reservation"
    __table_args__ = (
        ForeignKeyConstraint(["node", "device_index"], ["device.node", "device.index"]),
    )  # fmt: skip

    node: Mapped[str] = mapped_column(primary_key=True)
    device_index: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), index=True)
    attempt: Mapped[int]
