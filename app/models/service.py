"""A service that answers requests with a model, its replicas, what gateways count, its history, and what keys used."""

from datetime import date, datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.serving.states import ServiceState
from app.models.base import ID, Base, utc_now

_STATES = ", ".join(f"'{state}'" for state in ServiceState)
_LIVE = text("ended_at IS NULL")
_CURRENT = text("NOT ended_seen")


class Service(Base):
    """``spec`` is the request with its defaults, ``base`` the document of the jobs that are its replicas."""

    __tablename__ = "service"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATES})", name="known_status"),
        Index("uq_service_live_name", "project", "name", unique=True, postgresql_where=_LIVE, sqlite_where=_LIVE),
        Index("ix_service_live", "project", "model_key", postgresql_where=_LIVE, sqlite_where=_LIVE),
        Index("ix_service_created", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    name: Mapped[str] = mapped_column(String(63))
    created_by: Mapped[str] = mapped_column(ID)
    submits_as: Mapped[str] = mapped_column(ID)  # the API key in whose name its replicas are submitted
    spec: Mapped[dict[str, Any]]
    base: Mapped[dict[str, Any]]
    sealed_secrets: Mapped[str] = mapped_column(Text, default="")  # encrypted JSON {dotted path: value}, of `base`
    task: Mapped[str] = mapped_column(String(16))  # generate or embed
    model_key: Mapped[str] = mapped_column(String(255))  # which weights it serves; see domain.serving.model_keys
    is_automatic: Mapped[bool] = mapped_column(default=False)  # made by the first request for its model

    status: Mapped[str] = mapped_column(String(16), default=ServiceState.ACTIVE)
    pending_reason: Mapped[str] = mapped_column(Text, default="")  # why fewer replicas answer than are wanted
    revision: Mapped[int] = mapped_column(default=1)  # rises when `base` changes; replicas of older ones are replaced
    wanted: Mapped[int] = mapped_column(default=0)  # replicas, as the coordinator last decided
    next_number: Mapped[int] = mapped_column(default=0)  # of the next replica
    failures: Mapped[int] = mapped_column(default=0)  # replicas that failed since one has answered
    failed_at: Mapped[datetime | None]  # when a replica last failed or was refused
    not_before_at: Mapped[datetime | None]  # backoff before the next replica, after failures
    version: Mapped[int] = mapped_column(default=1)
    event_seq: Mapped[int] = mapped_column(default=0)
    requested_at: Mapped[datetime | None]  # when a request last came in, as gateways report
    needed_at: Mapped[datetime | None]  # when there last was enough to do for all of the wanted replicas
    above_target_since: Mapped[datetime | None]  # since when there is more to do than the target says
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)
    ended_at: Mapped[datetime | None]

    def mark_changed(self) -> None:
        """Increment the version and update the change time, by which readers detect changes."""
        self.version += 1
        self.updated_at = utc_now()


class Replica(Base):
    """One copy of a service: a job. Its endpoint is valid while the job is SERVING with the same fencing token."""

    __tablename__ = "replica"
    __table_args__ = (
        Index("ix_replica_service", "service_id", "number"),
        # The coordinator reads these twice a second, among all that a service has ever had.
        Index("ix_replica_current", "service_id", postgresql_where=_CURRENT, sqlite_where=text("ended_seen = 0")),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    service_id: Mapped[str] = mapped_column(ForeignKey("service.id", ondelete="CASCADE"))
    number: Mapped[int]  # 0, 1, 2 … within the service
    revision: Mapped[int]
    drain_requested_at: Mapped[datetime | None]  # it gets no new requests
    # Where its relay listens, as the supervisor of an attempt has recorded; NULL: it has not answered a probe yet.
    attempt: Mapped[int | None]
    fence: Mapped[int | None]
    address: Mapped[str | None] = mapped_column(String(255))
    port: Mapped[int | None]
    answers_since: Mapped[datetime | None]
    ended_seen: Mapped[bool] = mapped_column(default=False)  # the coordinator has taken notice of the job's end


class ServiceLoad(Base):
    """What one gateway counts of a service; written every second while there is something to count."""

    __tablename__ = "service_load"

    service_id: Mapped[str] = mapped_column(ForeignKey("service.id", ondelete="CASCADE"), primary_key=True)
    gateway: Mapped[str] = mapped_column(ID, primary_key=True)
    in_flight: Mapped[int] = mapped_column(default=0)  # handed to a replica, not answered to the end
    waiting: Mapped[int] = mapped_column(default=0)  # held until a replica answers
    requests: Mapped[int] = mapped_column(BigInteger, default=0)  # since the gateway started
    # Streams of the last five minutes by the time to their first token: see domain.serving.first_tokens.
    first_tokens: Mapped[list[int]] = mapped_column(default=list, server_default=text("'[]'"))
    at: Mapped[datetime] = mapped_column(default=utc_now)  # a row that is not renewed for 10 s counts as 0


class ServiceEvent(Base):
    """One event of a service's history, written in the transaction of the change."""

    __tablename__ = "service_event"
    __table_args__ = (UniqueConstraint("service_id", "seq"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    service_id: Mapped[str] = mapped_column(ForeignKey("service.id", ondelete="CASCADE"))
    seq: Mapped[int]  # 1, 2, 3 … within the service, without gaps
    at: Mapped[datetime] = mapped_column(default=utc_now)
    type: Mapped[str] = mapped_column(String(48))
    actor: Mapped[str] = mapped_column(String(96), default="")
    message: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)


class ModelUsage(Base):
    """What a key has asked of a model on a day (UTC): counts of answered requests, without their content."""

    __tablename__ = "model_usage"
    __table_args__ = (Index("ix_model_usage_project_day", "project", "day"),)

    day: Mapped[date] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(ID, primary_key=True)
    model: Mapped[str] = mapped_column(String(255), primary_key=True)  # as requests name it
    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    service_id: Mapped[str] = mapped_column(ID)
    requests: Mapped[int] = mapped_column(BigInteger, default=0)
    failures: Mapped[int] = mapped_column(BigInteger, default=0)  # answered with an error
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    completion_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
