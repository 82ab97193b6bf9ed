"""One run of a job on devices, from placement to its end: the full record shown to users and dialects."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.units import WHOLE
from app.models.base import Base, JsonOrNull, utc_now

# Literal SQL: with a bound parameter the partial index would not match.
IS_OUTCOME_ERROR = text("cause = 'OUTCOME_ERROR'")


class Attempt(Base):
    __tablename__ = "attempt"
    __table_args__ = (
        Index("ix_attempt_outcome_error", "ended_at", postgresql_where=IS_OUTCOME_ERROR, sqlite_where=IS_OUTCOME_ERROR),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int]
    node_names: Mapped[list[str]]
    device_indices: Mapped[list[list[int]]]  # one list of indices per node
    device_type: Mapped[str] = mapped_column(String(64))
    device_share: Mapped[int] = mapped_column(default=WHOLE, server_default=text("100"))  # percent of each device
    # Of a job with roles, in the order of their ranks: role, index, node, part, devices, first_rank, ranks
    instances: Mapped[list[Any] | None] = mapped_column(JsonOrNull)
    # For attempts on several nodes: the rendezvous, and the reason for ending while some parts still run.
    rendezvous: Mapped[dict[str, Any] | None] = mapped_column(JsonOrNull)
    ending: Mapped[dict[str, Any] | None] = mapped_column(JsonOrNull)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    announced_at: Mapped[datetime | None]  # when the wake-up was last sent
    started_at: Mapped[datetime | None]
    trained_at: Mapped[datetime | None]  # when the ranks were ready for the first step
    ended_at: Mapped[datetime | None]
    start_type: Mapped[str] = mapped_column(String(32))
    end_reason: Mapped[str | None] = mapped_column(Text)
    end_related_task: Mapped[str | None] = mapped_column(String(64))
    end_recover: Mapped[str | None] = mapped_column(String(48))
    cause: Mapped[str | None] = mapped_column(String(32))
    policy: Mapped[str | None] = mapped_column(String(48))
    recover_before_downgrade: Mapped[str | None] = mapped_column(String(48))  # the cheaper policy that was exhausted
    start_step: Mapped[int] = mapped_column(default=0)
    end_step: Mapped[int | None]
    exit_code: Mapped[int | None]
    lost_steps: Mapped[int | None]
    detect_seconds: Mapped[float | None]
    recover_seconds: Mapped[float | None]
    can_checkpoint: Mapped[bool | None]  # whether its script saves on request; None until reported
