"""Files that users have uploaded, and uploads in parts that have not ended."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class File(Base):
    """A file exists once its content is complete in the storage; until then its row is hidden, as ``receiving``."""

    __tablename__ = "file"
    __table_args__ = (
        CheckConstraint("status IN ('receiving', 'uploaded', 'processed', 'error')", name="known_status"),
        # Ids sort by creation.
        Index("ix_file_project_id", "project", "id"),
        Index("ix_file_project_purpose_id", "project", "purpose", "id"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    created_by: Mapped[str] = mapped_column(String(64))  # an API key, or the name of a service
    filename: Mapped[str] = mapped_column(String(255))
    purpose: Mapped[str] = mapped_column(String(32))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(16), default="uploaded")
    status_details: Mapped[str] = mapped_column(Text, default="")  # what is wrong, with line and field
    records: Mapped[int | None]  # lines that are not empty; None until that is known
    shape: Mapped[str | None] = mapped_column(String(32))  # of its records; one of app.domain.files.shapes
    # The job that wrote it. No cascade: the row must outlive the job until the content is deleted.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    expires_at: Mapped[datetime | None] = mapped_column(index=True)


class Upload(Base):
    """A file that is uploaded in parts."""

    __tablename__ = "upload"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'completed', 'cancelled', 'expired')", name="known_status"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    created_by: Mapped[str] = mapped_column(String(64))
    filename: Mapped[str] = mapped_column(String(255))
    purpose: Mapped[str] = mapped_column(String(32))
    mime_type: Mapped[str] = mapped_column(String(255))
    size_bytes: Mapped[int] = mapped_column(BigInteger)  # of the complete file, as announced
    status: Mapped[str] = mapped_column(String(16), default="pending")
    file_id: Mapped[str | None] = mapped_column(ID)  # once it is completed
    file_expires_seconds: Mapped[int | None]  # of the file, from its creation on
    completing_since: Mapped[datetime | None]  # when a request began to put its parts together
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class UploadPart(Base):
    """A part exists once its content is complete in the storage."""

    __tablename__ = "upload_part"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    upload_id: Mapped[str] = mapped_column(ForeignKey("upload.id", ondelete="CASCADE"), index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
