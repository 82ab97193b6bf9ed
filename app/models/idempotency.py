"""The first response to a POST with an Idempotency-Key, stored for 24 hours."""

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now


class IdempotentReply(Base):
    __tablename__ = "idempotent_reply"

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(64), primary_key=True)  # the caller's API key
    idempotency_key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))  # method, path and body
    status_code: Mapped[int]
    body: Mapped[dict[str, Any]]
    location: Mapped[str | None] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(default=utc_now, index=True)
