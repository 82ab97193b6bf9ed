"""One audit log entry: an action done or denied, with its actor. It outlives its target."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now

# The actions of most entries.
FREQUENT_ACTIONS = ("job.status", "job.submit")
# A partial index is used only by queries with literally the same condition.
NOT_FREQUENT_ACTIONS = text("action NOT IN ('job.status', 'job.submit')")
DENIED = text("outcome = 'denied'")


class AuditEntry(Base):
    __tablename__ = "audit_entry"
    __table_args__ = (
        CheckConstraint("outcome IN ('done', 'denied')", name="known_outcome"),
        # Covering columns after the id: other filters are evaluated within the index.
        Index("ix_audit_entry_at", "at", "id", "action"),
        Index("ix_audit_entry_project", "project", "at", "id", "action"),
        Index("ix_audit_entry_target", "target", "at", "id"),
        Index("ix_audit_entry_actor", "actor", "at", "id", "project", "action", "outcome"),
        Index(
            "ix_audit_entry_action",
            "action",
            "at",
            "id",
            "project",
            postgresql_where=NOT_FREQUENT_ACTIONS,
            sqlite_where=NOT_FREQUENT_ACTIONS,
        ),
        Index(
            "ix_audit_entry_denied",
            "at",
            "id",
            "project",
            "action",
            "actor",
            postgresql_where=DENIED,
            sqlite_where=DENIED,
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=utc_now)
    project: Mapped[str | None] = mapped_column(String(63))  # None: cluster-wide or unknown
    actor: Mapped[str] = mapped_column(String(96))
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(128), default="")
    outcome: Mapped[str] = mapped_column(String(8), default="done")
    message: Mapped[str] = mapped_column(Text, default="")
    request_id: Mapped[str] = mapped_column(ID, default="")
    address: Mapped[str] = mapped_column(String(64), default="")
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)
