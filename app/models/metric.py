"""One point of a metric. Steps done again after a resume replace their points."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base


class Metric(Base):
    __tablename__ = "metric"
    __table_args__ = (Index("ix_metric_job_seq", "job_id", "seq"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    value: Mapped[float | None]  # NULL: not a finite number; `special` then says which
    special: Mapped[str | None] = mapped_column(String(9))  # NaN, Infinity, -Infinity: SQLite has no NaN
    attempt: Mapped[int]
    # 1, 2, 3 … within the job in the order of arrival; a point that is replaced gets a new number, so that whoever
    # follows sees it again.
    seq: Mapped[int] = mapped_column(BigInteger)
