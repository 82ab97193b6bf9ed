"""Heartbeats of coordinators, and the leader election of the planner."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now


class ProcessBeat(Base):
    """One row per coordinator, and one named `planner`, held by the elected leader."""

    __tablename__ = "process_beat"

    name: Mapped[str] = mapped_column(String(96), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))  # coordinator | planner
    holder: Mapped[str] = mapped_column(String(160), default="")
    counter: Mapped[int] = mapped_column(default=0)
    last_seen_at: Mapped[datetime] = mapped_column(default=utc_now)
