"""A preflight inspection of model and data, for a submitted job or a validation request, or of an uploaded file; or a
run of a Python grader.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class Inspection(Base):
    """Waits until a coordinator claims it; a stalled ``counter`` means that the claiming process is gone."""

    __tablename__ = "inspection"
    __table_args__ = (
        CheckConstraint("state IN ('waiting', 'running', 'done')", name="known_state"),
        CheckConstraint("verdict IS NULL OR verdict IN ('passed', 'failed', 'left')", name="known_verdict"),
        Index("ix_inspection_state", "state", "id"),
        Index("ix_inspection_fingerprint", "fingerprint", "finished_at"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    # Set for a job, whose row holds the document; otherwise the request's document is stored here.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), unique=True)
    file_id: Mapped[str | None] = mapped_column(ID, index=True, unique=True)  # set for a file
    # A grader's run; ``document`` has what it needs.
    is_grading: Mapped[bool] = mapped_column(default=False, server_default=false())
    request_hash: Mapped[str] = mapped_column(String(64), default="", index=True)
    document: Mapped[dict[str, Any] | None]
    sealed_secrets: Mapped[str] = mapped_column(Text, default="")
    fingerprint: Mapped[str] = mapped_column(String(64), default="")  # of the result's inputs; empty: unknown

    state: Mapped[str] = mapped_column(String(8), default="waiting")
    holder: Mapped[str] = mapped_column(String(160), default="")
    counter: Mapped[int] = mapped_column(default=0)
    tries: Mapped[int] = mapped_column(default=0)
    verdict: Mapped[str | None] = mapped_column(String(8))
    report: Mapped[dict[str, Any] | None]
    told: Mapped[bool] = mapped_column(default=False)  # whether the requester has received the result
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    finished_at: Mapped[datetime | None]
