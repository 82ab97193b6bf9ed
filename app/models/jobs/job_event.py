"""One event of a job's history, written in the transaction of the change."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class JobEvent(Base):
    __tablename__ = "job_event"
    __table_args__ = (UniqueConstraint("job_id", "seq"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    seq: Mapped[int]  # 1, 2, 3 … within the job, without gaps
    at: Mapped[datetime] = mapped_column(default=utc_now)
    type: Mapped[str] = mapped_column(String(48))
    from_status: Mapped[str | None] = mapped_column(String(16))
    to_status: Mapped[str | None] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(String(96), default="")
    reason: Mapped[str] = mapped_column(String(64), default="")
    message: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)
