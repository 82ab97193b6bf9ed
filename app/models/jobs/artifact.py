"""A file of a job's result in the storage."""

from sqlalchemy import BigInteger, ForeignKey, String, false
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base


class Artifact(Base):
    __tablename__ = "artifact"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    path: Mapped[str] = mapped_column(String(512), primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    # Hidden until its job has ended. See services/artifact_rows.py.
    pending: Mapped[bool] = mapped_column(default=False, server_default=false())
