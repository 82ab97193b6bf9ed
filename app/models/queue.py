"""A named waiting line that jobs are submitted to."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now

DEFAULT_QUEUE = "default"


class Queue(Base):
    __tablename__ = "queue"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
