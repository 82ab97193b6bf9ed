"""The exclusive right to run a part of a job. A unique index allows at most one live lease per part."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class Lease(Base):
    __tablename__ = "lease"
    __table_args__ = (
        Index(
            "uq_lease_live_job",
            "job_id",
            "part",
            unique=True,
            postgresql_where=text("released_at IS NULL"),
            sqlite_where=text("released_at IS NULL"),
        ),
        Index(
            "ix_lease_live_node",
            "node",
            postgresql_where=text("released_at IS NULL"),
            sqlite_where=text("released_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), index=True)
    attempt: Mapped[int]
    fence: Mapped[int]
    node: Mapped[str] = mapped_column(String(63))
    part: Mapped[int] = mapped_column(default=0, server_default=text("0"))  # index of the node within the attempt
    counter: Mapped[int] = mapped_column(default=0)  # 0: not claimed yet; incremented by every renewal
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    claimed_at: Mapped[datetime | None]
    renewed_at: Mapped[datetime | None]  # informational only
    ran_seconds: Mapped[float] = mapped_column(default=0.0, server_default=text("0"))  # as of its last renewal
    released_at: Mapped[datetime | None]
    # Identifies the supervisor for a restarted node worker: a pid alone may be reused.
    supervisor_pid: Mapped[int | None]
    # Field 22 of /proc/<pid>/stat, clock ticks since boot: over 2³¹ after 248 days.
    supervisor_started: Mapped[int | None] = mapped_column(BigInteger)
    boot_id: Mapped[str | None] = mapped_column(String(64))
