"""A job deletion in progress."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now


class JobDeletion(Base):
    """Written before anything of the job is deleted, and deleted last; a remaining row is an interrupted deletion."""

    __tablename__ = "job_deletion"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    artifacts: Mapped[bool]  # whether its files are deleted, too
    begun_at: Mapped[datetime] = mapped_column(default=utc_now)
