"""A deletion of a job that was begun."""

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now


class JobDeletion(Base):
    """Written before anything of the job goes, and gone with it: whoever finds one ends what was cut off."""

    __tablename__ = "job_deletion"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    artifacts: Mapped[bool]  # its files go, too
    begun_at: Mapped[datetime] = mapped_column(default=utc_now)
