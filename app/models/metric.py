"""Points of metrics, and summaries of many of them, from which a long series is drawn without reading it all."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base


class Metric(Base):
    """One point. Steps done again after a resume replace their points."""

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


class MetricSummary(Base):
    """Points next to each other, 16 to the power of ``level`` of them: the smallest and the largest, and their steps.

    The numbers are those by which points are ordered, see ``domain.series``: also what is not finite has its place.
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
