"""Batches of requests to models, and the inference jobs that answer them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.batches.states import ENDED, BatchState
from app.models.base import ID, Base, utc_now

_STATES = ", ".join(f"'{state}'" for state in BatchState)
_LIVE = text("status NOT IN (" + ", ".join(f"'{state}'" for state in ENDED) + ")")


class Batch(Base):
    """The requests of an uploaded file. Rows outlive their jobs and files."""

    __tablename__ = "batch"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATES})", name="known_status"),
        # Ids sort by creation.
        Index("ix_batch_project_id", "project", "id"),
        Index("ix_batch_live", "status", postgresql_where=_LIVE, sqlite_where=_LIVE),
        Index("ix_batch_input_file_id", "input_file_id"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    created_by: Mapped[str] = mapped_column(ID)
    submits_as: Mapped[str] = mapped_column(ID)  # the API key that submits its jobs
    input_file_id: Mapped[str] = mapped_column(ID)
    endpoint: Mapped[str] = mapped_column(String(64))  # the `url` of all its requests
    window_seconds: Mapped[int]  # from its creation to its expiry
    tags: Mapped[dict[str, str]] = mapped_column(default=dict)  # OpenAI's metadata
    parts: Mapped[dict[str, Any]] = mapped_column(default=dict)  # sections of a job document that its jobs get
    output_expires_seconds: Mapped[int | None]  # of its files, from their creation on

    status: Mapped[str] = mapped_column(String(16), default=BatchState.VALIDATING)
    pending_reason: Mapped[str] = mapped_column(Text, default="")  # why it does not advance
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    checked_lines: Mapped[int] = mapped_column(default=0)  # of the file, while it is validated
    models: Mapped[dict[str, int]] = mapped_column(default=dict)  # model as requests name it → number of requests
    problems: Mapped[list[Any]] = mapped_column(default=list)  # [{"code", "message", "param", "line"}]
    total: Mapped[int] = mapped_column(default=0)
    completed: Mapped[int] = mapped_column(default=0)
    failed: Mapped[int] = mapped_column(default=0)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    completion_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    output_file_id: Mapped[str | None] = mapped_column(ID)
    error_file_id: Mapped[str | None] = mapped_column(ID)

    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)
    in_progress_at: Mapped[datetime | None]
    finalizing_at: Mapped[datetime | None]
    cancelling_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class BatchJob(Base):
    """The inference job that answers the requests that name one model."""

    __tablename__ = "batch_job"

    batch_id: Mapped[str] = mapped_column(ForeignKey("batch.id", ondelete="CASCADE"), primary_key=True)
    model: Mapped[str] = mapped_column(String(1024), primary_key=True)  # as the requests name it
    # No cascade: a job that is deleted must not take with it that there was one.
    job_id: Mapped[str] = mapped_column(ID, index=True)
    requests: Mapped[int]
