"""Metric points, and summaries by which a long series is drawn without reading every point."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base


class Metric(Base):
    """One metric point. Steps repeated after a resume replace their points."""

    __tablename__ = "metric"
    __table_args__ = (Index("ix_metric_job_seq", "job_id", "seq"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    value: Mapped[float | None]  # NULL: not finite; see `special`
    special: Mapped[str | None] = mapped_column(String(9))  # NaN, Infinity, -Infinity: SQLite has no NaN
    attempt: Mapped[int]
    # 1, 2, 3 … within the job in order of arrival; a replaced point gets a new number, so that followers receive it.
    seq: Mapped[int] = mapped_column(BigInteger)


class MetricSummary(Base):
    """Minimum and maximum of 16 ** ``level`` adjacent points, with their steps.

    Values are sort keys that also order non-finite numbers.
    """

    __tablename__ = "metric_summary"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    level: Mapped[int] = mapped_column(primary_key=True)
    first_step: Mapped[int] = mapped_column(primary_key=True)
    last_step: Mapped[int]
    low_step: Mapped[int]
    low: Mapped[float]
    high_step: Mapped[int]
    high: Mapped[float]
