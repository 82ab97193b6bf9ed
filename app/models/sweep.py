"""A sweep, its trials, what they reported at rungs, and its history."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.sweeps.states import SweepState, TrialState
from app.models.base import ID, Base, JsonOrNull, utc_now

_STATES = ", ".join(f"'{state}'" for state in SweepState)
_TRIAL_STATES = ", ".join(f"'{state}'" for state in TrialState)


class Sweep(Base):
    __tablename__ = "sweep"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATES})", name="known_status"),
        Index("ix_sweep_created", "created_at", "id"),
        Index("ix_sweep_project_created", "project", "created_at", "id"),
        Index("ix_sweep_status", "status", "id"),
        Index(
            "uq_sweep_alias",
            "alias",
            unique=True,
            postgresql_where=text("alias IS NOT NULL"),
            sqlite_where=text("alias IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    created_by: Mapped[str] = mapped_column(ID)
    # The key in whose name trials are submitted: the creator's, or that of the caller who resumed the sweep last.
    submits_as: Mapped[str] = mapped_column(ID)
    name: Mapped[str] = mapped_column(String(128))
    labels: Mapped[dict[str, str]] = mapped_column(default=dict)
    spec: Mapped[dict[str, Any]]  # with secrets of the job replaced by "***"
    # Results of earlier sweeps, as observations: megabytes for the largest, so they are read where they are needed.
    known: Mapped[list[Any]] = mapped_column(default=list, deferred=True)
    base: Mapped[dict[str, Any]]  # the job document that every trial starts from, defaults filled in, secrets masked
    sealed_secrets: Mapped[str] = mapped_column(Text, default="")  # encrypted JSON {dotted path: value}
    foreign: Mapped[dict[str, Any]] = mapped_column(default=dict)  # request fields that a dialect must return
    alias: Mapped[str | None] = mapped_column(String(320))  # as of a job: `dialect:project:name`

    status: Mapped[str] = mapped_column(String(16), default=SweepState.PENDING)
    status_reason: Mapped[str] = mapped_column(Text, default="")
    ends_as: Mapped[str | None] = mapped_column(String(16))  # of a FINISHING sweep: its state once no trial is left
    pending_reason: Mapped[str] = mapped_column(Text, default="")  # why there is no further trial yet
    version: Mapped[int] = mapped_column(default=1)
    event_seq: Mapped[int] = mapped_column(default=0)
    seq: Mapped[int] = mapped_column(default=0)  # of the newest report, or end of a trial, that was recorded
    next_number: Mapped[int] = mapped_column(default=0)
    best_number: Mapped[int | None]  # with one objective
    improved_seq: Mapped[int] = mapped_column(default=0)  # `seq` of the end of the best trial
    # Not empty: why no further trial is a fork.
    trunks_refused: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))

    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    def mark_changed(self) -> None:
        """Increment the version and update the change time, by which readers detect changes."""
        self.version += 1
        self.updated_at = utc_now()


class Trial(Base):
    """One set of values with its job. Numbers of a sweep are 0, 1, 2 … without gaps."""

    __tablename__ = "trial"
    __table_args__ = (
        CheckConstraint(f"state IN ({_TRIAL_STATES})", name="known_state"),
        UniqueConstraint("job_id"),
        Index("ix_trial_state", "sweep_id", "state", "number"),
        Index("ix_trial_value", "sweep_id", "value", "number"),
        # Trials whose jobs are to be watched, of all sweeps.
        Index(
            "ix_trial_running",
            "sweep_id",
            postgresql_where=text("state = 'RUNNING'"),
            sqlite_where=text("state = 'RUNNING'"),
        ),
    )

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    # NULL: its document was refused, or the job was deleted.
    job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id", ondelete="SET NULL"))
    source: Mapped[str] = mapped_column(String(16))  # where the values come from: method, enqueued, added, exploited
    values: Mapped[dict[str, Any]]
    seed: Mapped[int] = mapped_column(BigInteger)  # of its suggestion
    seen_seq: Mapped[int]  # what the method knew: everything up to this number of the sweep's `seq`
    bracket: Mapped[int] = mapped_column(default=0)
    note: Mapped[str] = mapped_column(Text, default="")  # of the method
    # A fork begins with the checkpoint of another trial, which has made `fork_step` steps.
    parent_number: Mapped[int | None]
    fork_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    fork_step: Mapped[int] = mapped_column(default=0, server_default=text("0"))

    state: Mapped[str] = mapped_column(String(16), default=TrialState.RUNNING)
    reason: Mapped[str] = mapped_column(Text, default="")  # why it ended so
    stop_reason: Mapped[str] = mapped_column(Text, default="")  # not empty: its sweep has requested its end
    paused: Mapped[bool] = mapped_column(default=False)  # by its sweep, which resumes it
    promoted: Mapped[bool] = mapped_column(default=False)  # by hand: early stopping does not end it
    error_type: Mapped[str | None] = mapped_column(String(32))
    objectives: Mapped[list[float] | None] = mapped_column(JsonOrNull)  # one number each, as measured
    value: Mapped[float | None]  # the first objective, by which trials are ordered
    violations: Mapped[list[float]] = mapped_column(default=list)  # per constraint: above 0 by how much it is broken
    rung: Mapped[int | None]  # of its newest report
    step: Mapped[int] = mapped_column(default=0)  # of its newest report, or of its end
    observed_seq: Mapped[int | None]  # the sweep's `seq` when its end was recorded
    device_seconds: Mapped[float] = mapped_column(default=0.0)  # of its ended attempts
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    finished_at: Mapped[datetime | None]


class TrialReport(Base):
    """The objective of a trial at a rung, and what was decided."""

    __tablename__ = "trial_report"
    __table_args__ = (UniqueConstraint("sweep_id", "seq"), Index("ix_trial_report_rung", "sweep_id", "rung", "seq"))

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    rung: Mapped[int] = mapped_column(primary_key=True)  # steps, epochs or tokens
    seq: Mapped[int]
    value: Mapped[float | None]  # as measured; NULL: not finite
    continues: Mapped[bool]
    rank: Mapped[int]  # from 1, among `compared` reports
    compared: Mapped[int]
    # The sweep's `seq` of the decision; NULL: the trial has halted and waits for it.
    decided_seq: Mapped[int | None]
    at: Mapped[datetime] = mapped_column(default=utc_now)


class SweepEvent(Base):
    """One event of a sweep's history, written in the transaction of the change."""

    __tablename__ = "sweep_event"
    __table_args__ = (UniqueConstraint("sweep_id", "seq"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id", ondelete="CASCADE"))
    seq: Mapped[int]  # 1, 2, 3 … within the sweep, without gaps
    at: Mapped[datetime] = mapped_column(default=utc_now)
    type: Mapped[str] = mapped_column(String(48))
    from_status: Mapped[str | None] = mapped_column(String(16))
    to_status: Mapped[str | None] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(String(96), default="")
    reason: Mapped[str] = mapped_column(String(64), default="")
    message: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)


class SweepCount(Base):
    """A histogram bucket of what sweeps of a project took, or a sum of what they spared; it only grows.

    Written with what it counts. No foreign keys: it outlives the sweeps, because Prometheus takes a smaller value for a
    restart.
    """

    __tablename__ = "sweep_count"

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    kind: Mapped[str] = mapped_column(String(24), primary_key=True)
    # 0: longer than the largest bucket, or a sum without buckets.
    up_to_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    count: Mapped[int] = mapped_column(BigInteger, default=0)
    seconds: Mapped[float] = mapped_column(default=0.0)
