"""A part of the results of an inference job, complete in the storage by size and digest."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now


class Shard(Base):
    """The records from ``first_record`` on; how records are cut into shards follows from the job's document alone.

    A row exists once the shard is stored. ``fence`` is the fencing token of the attempt that stored it.
    """

    __tablename__ = "shard"
    # The planner asks in each of its rounds when a job has stored its newest one.
    __table_args__ = (Index("ix_shard_job_id_created_at", "job_id", "created_at"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_record: Mapped[int] = mapped_column(BigInteger)
    records: Mapped[int]
    attempt: Mapped[int]
    fence: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))  # over the manifest's file list
    counts: Mapped[dict[str, Any]] = mapped_column(default=dict)  # failed records, tokens, and what the task counts
    uri: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
