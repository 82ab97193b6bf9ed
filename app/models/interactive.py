"""Interactive access to running jobs: where the nodes of an attempt are reached, and the sessions of people."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now

_OPEN = text("ended_at IS NULL")


class InteractiveEndpoint(Base):
    """Where the relay to a part's session server listens; valid while the job has this fencing token."""

    __tablename__ = "interactive_endpoint"

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    part: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    fence: Mapped[int]
    first_rank: Mapped[int]  # of this part; it has ``ranks`` of them
    ranks: Mapped[int]
    address: Mapped[str] = mapped_column(String(255), default="")
    port: Mapped[int] = mapped_column(default=0)  # 0: it could not be opened, for ``message``
    message: Mapped[str] = mapped_column(Text, default="")
    recorded_at: Mapped[datetime] = mapped_column(default=utc_now)


class InteractiveSession(Base):
    """A command, a shell or a forwarded port of a person in a running job; kept as long as its job."""

    __tablename__ = "interactive_session"
    __table_args__ = (
        Index("ix_interactive_session_job", "job_id", "id"),
        Index("ix_interactive_session_open", "id", postgresql_where=_OPEN, sqlite_where=_OPEN),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    kind: Mapped[str] = mapped_column(String(16))  # exec, shell or port_forward
    rank: Mapped[int] = mapped_column(default=0)
    request: Mapped[dict[str, Any]] = mapped_column(default=dict)  # what the session server is asked for
    created_by: Mapped[str] = mapped_column(ID)  # the API key
    gateway_id: Mapped[str] = mapped_column(ID, default="")  # that has it open
    recorded: Mapped[bool] = mapped_column(default=False)  # whether its output is kept
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    started_at: Mapped[datetime | None]
    seen_at: Mapped[datetime | None]  # when its gateway last reported it
    ended_at: Mapped[datetime | None]
    end_requested_at: Mapped[datetime | None]
    end_reason: Mapped[str] = mapped_column(Text, default="")
    exit_code: Mapped[int | None]
    bytes_in: Mapped[int] = mapped_column(BigInteger, default=0)
    bytes_out: Mapped[int] = mapped_column(BigInteger, default=0)
    recording_bytes: Mapped[int] = mapped_column(BigInteger, default=0)  # what of it is stored
