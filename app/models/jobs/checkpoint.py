"""A recorded checkpoint, whose files are complete in the storage by size and digest."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class Checkpoint(Base):
    __tablename__ = "checkpoint"
    __table_args__ = (
        Index("ix_checkpoint_job_step", "job_id", "step"),
        Index("ix_checkpoint_project", "project"),  # each planner pass sums a project's stored bytes
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    step: Mapped[int]
    epoch: Mapped[float] = mapped_column(default=0.0)
    world_size: Mapped[int] = mapped_column(default=1)
    threads_per_rank: Mapped[int | None]
    size_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    sha256: Mapped[str] = mapped_column(String(64))  # over the manifest's file list
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    uri: Mapped[str] = mapped_column(Text)
    is_best: Mapped[bool] = mapped_column(default=False)
    diverged: Mapped[bool] = mapped_column(default=False, server_default=false())  # its job rolled back
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    deleted_at: Mapped[datetime | None]  # set before the files are deleted; readers ignore such rows
