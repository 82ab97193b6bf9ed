"""A queue that jobs are submitted to, and a histogram of waiting times."""

from datetime import datetime

from sqlalchemy import BigInteger, String, false
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, utc_now

DEFAULT_QUEUE = "default"


class Queue(Base):
    __tablename__ = "queue"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    is_paused: Mapped[bool] = mapped_column(default=False, server_default=false())  # accepts jobs and starts none
    max_running_jobs: Mapped[int | None]
    max_waiting_jobs: Mapped[int | None]
    weight: Mapped[float | None]  # share of a project's devices; queues without a weight count as one queue of weight 1
    created_at: Mapped[datetime] = mapped_column(default=utc_now)


class QueueWait(Base):
    """A histogram bucket: attempts that waited at most ``up_to_seconds`` (0: longer than the largest), and the sum.

    Incremented when an attempt is placed; no foreign keys, so that it does not prevent deletions.
    """

    __tablename__ = "queue_wait"

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    queue: Mapped[str] = mapped_column(String(63), primary_key=True)
    up_to_seconds: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempts: Mapped[int] = mapped_column(BigInteger, default=0)
    waited_seconds: Mapped[float] = mapped_column(default=0.0)
