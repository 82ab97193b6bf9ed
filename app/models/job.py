"""A job: what was asked for, its state, the wishes about it, and its newest progress."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models.base import ID, Base, utc_now

_STATES = ", ".join(f"'{state}'" for state in JobState)
_ENDS = ", ".join(f"'{state}'" for state in JobState if state in TERMINAL)
# PostgreSQL's other collations neither keep names with one prefix together nor sort them as SQLite does.
_NAME = String(128).with_variant(String(128, collation="C"), "postgresql")
# What lists filter and sort by: at the end of an index, it spares looking up the rows themselves.
_LISTED = ("project", "status", "training_type", "framework", "queue", "priority", "created_at")


def _list_index(name: str, *columns: str) -> Index:
    """For lists of one filter or order: whatever else is asked for is answered inside the index."""
    return Index(name, *columns, *(column for column in _LISTED if column not in columns))


def _given_only(name: str, column: str) -> Index:
    """For references that hardly any job has."""
    return Index(
        name, column, postgresql_where=text(f"{column} IS NOT NULL"), sqlite_where=text(f"{column} IS NOT NULL")
    )


class Job(Base):
    __tablename__ = "job"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATES})", name="known_status"),
        CheckConstraint("priority BETWEEN 0 AND 10", name="priority_range"),
        CheckConstraint("progress BETWEEN 0 AND 1", name="progress_range"),
        CheckConstraint(
            "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue', 'preempt')", name="known_wish"
        ),
        _list_index("ix_job_created", "created_at", "id", "name"),
        _list_index("ix_job_project_created", "project", "created_at", "id", "name"),
        _list_index("ix_job_status_created", "status", "created_at", "id"),
        _list_index("ix_job_training_type", "training_type", "created_at", "id"),
        _list_index("ix_job_framework", "framework", "created_at", "id"),
        _list_index("ix_job_name", "name", "id"),
        _list_index("ix_job_priority", "priority", "id"),
        Index("uq_job_alias", "alias", unique=True, postgresql_where=text("alias IS NOT NULL"),
              sqlite_where=text("alias IS NOT NULL")),
        _given_only("ix_job_parent_job_id", "parent_job_id"),
        _given_only("ix_job_resume_checkpoint_id", "resume_checkpoint_id"),
        Index("ix_job_status_order", "status", "priority", "queued_at"),
        # Who waits or runs in which queue, and how many jobs of a project are in which state, without reading a row.
        Index("ix_job_queue_status", "queue", "status", "project"),
        # The mirror's question "what changed since I told the result backend" must not scan finished jobs.
        Index("ix_job_unmirrored", "id", postgresql_where=text("mirrored_version < version"),
              sqlite_where=text("mirrored_version < version")),
    )  # fmt: skip

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    created_by: Mapped[str] = mapped_column(ID, default="")
    name: Mapped[str] = mapped_column(_NAME)
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    spec: Mapped[dict[str, Any]]  # as submitted, defaults filled in, secrets replaced by "***"
    sealed_secrets: Mapped[str] = mapped_column(Text, default="")  # encrypted JSON {dotted path: value}
    foreign: Mapped[dict[str, Any]] = mapped_column(default=dict)  # what a dialect must be able to give back
    # What a dialect calls the job where it has names of its own: `dialect:project:name`.
    alias: Mapped[str | None] = mapped_column(String(320))
    training_type: Mapped[str] = mapped_column(String(32))
    framework: Mapped[str] = mapped_column(String(32))
    queue: Mapped[str] = mapped_column(ForeignKey("queue.name"))
    priority: Mapped[int]
    max_retries: Mapped[int] = mapped_column(default=3)
    max_runtime_seconds: Mapped[int | None]
    parent_job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id"))

    status: Mapped[str] = mapped_column(String(16), default=JobState.PENDING)
    status_reason: Mapped[str] = mapped_column(Text, default="")
    pending_reason: Mapped[str] = mapped_column(Text, default="")
    version: Mapped[int] = mapped_column(default=1)
    mirrored_version: Mapped[int] = mapped_column(default=0)
    fence: Mapped[int] = mapped_column(default=0)  # the newest fencing token; a writer with another one is stale
    event_seq: Mapped[int] = mapped_column(default=0)
    metric_seq: Mapped[int] = mapped_column(BigInteger, default=0)  # the newest arrival number of its metric points

    # Wishes: columns, never states. `requested` is what the supervisor must bring about.
    requested: Mapped[str | None] = mapped_column(String(16))
    requested_reason: Mapped[str] = mapped_column(Text, default="")
    requested_by: Mapped[str] = mapped_column(ID, default="")
    cancel_requested_at: Mapped[datetime | None]
    pause_requested_at: Mapped[datetime | None]
    pause_saves: Mapped[bool] = mapped_column(default=True)
    pause_force: Mapped[bool] = mapped_column(default=False, server_default=false())  # stop also if the save fails
    checkpoint_requests: Mapped[int] = mapped_column(default=0)  # raised by one for each "save one now"

    attempt: Mapped[int] = mapped_column(default=0)
    # What recovery goes by, all of it since the last checkpoint that was further than every one before.
    retries_used: Mapped[int] = mapped_column(default=0)  # failures
    in_place_restarts: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    hangs: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    host_losses: Mapped[int] = mapped_column(default=0, server_default=text("0"))  # took node or supervisor down
    excluded_nodes: Mapped[list[Any]] = mapped_column(default=list, server_default=text("'[]'"))  # suspects, by name
    disk_waits: Mapped[int] = mapped_column(default=0, server_default=text("0"))  # for room on a full disk
    no_room_on: Mapped[list[Any]] = mapped_column(default=list, server_default=text("'[]'"))  # nodes, newest last
    awaits_node: Mapped[str] = mapped_column(String(63), default="", server_default=text("''"))  # it is kept for it
    awaits_others: Mapped[list[Any]] = mapped_column(
        default=list, server_default=text("'[]'")
    )  # of a gang; if awaits_node
    # What was changed so that the job can go on: batch_halvings, learning_rate_factor, rollbacks.
    adjustments: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    not_before_at: Mapped[datetime | None]  # backoff after a transient failure
    threads_per_rank: Mapped[int | None]  # fixed by the first attempt: another number changes the last bit
    # What the node of the first attempt presets for a document that is silent, fixed for the same reason.
    node_defaults: Mapped[dict[str, Any] | None]
    node_names: Mapped[list[Any]] = mapped_column(default=list)

    progress: Mapped[float] = mapped_column(default=0.0)
    current_step: Mapped[int] = mapped_column(default=0)
    total_steps: Mapped[int | None]
    current_epoch: Mapped[float] = mapped_column(default=0.0)
    total_epochs: Mapped[float | None]
    tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    eta_seconds: Mapped[float | None]
    elapsed_seconds: Mapped[float] = mapped_column(default=0.0)  # of ended attempts; a running one is added on reading
    gpu_seconds: Mapped[float] = mapped_column(default=0.0)
    gpu_util_sum: Mapped[float | None]  # percent, over the samples of all attempts; None where no GPU was observed
    gpu_util_samples: Mapped[int | None]
    # The newest step that a summary of one of its metrics reaches: points after it need not look for summaries.
    metric_summary_step: Mapped[int | None]
    latest_metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    latest_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    best_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    # Where the first attempt starts from; until the job has ended, retention keeps that checkpoint.
    resume_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    # What the next attempt starts from instead of the newest, until it has saved one of its own.
    chosen_checkpoint_id: Mapped[str | None] = mapped_column(ID)

    error_type: Mapped[str | None] = mapped_column(String(32))
    error_message: Mapped[str | None] = mapped_column(Text)
    error_stack: Mapped[str | None] = mapped_column(Text)
    report: Mapped[dict[str, Any] | None]

    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now)
    queued_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    @property
    def state(self) -> JobState:
        return JobState(self.status)

    def mark_changed(self) -> None:
        """Whoever compares versions, or asks for what has changed since a time, learns of it."""
        self.version += 1
        self.updated_at = utc_now()


class JobLabel(Base):
    """One label of a job, as a row, so that filters by label use an index.

    With what else lists filter by and never changes: looking that up in the jobs of a label that many have takes long.
    """

    __tablename__ = "job_label"
    __table_args__ = (
        CheckConstraint(f"ended_as IN ({_ENDS})", name="known_end"),
        Index("ix_job_label_key_value", "key", "value", "created_at", "job_id", "project", "ended_as", "training_type",
              "framework", "queue"),
    )  # fmt: skip

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[str] = mapped_column(String(255))
    project: Mapped[str] = mapped_column(String(63))
    training_type: Mapped[str] = mapped_column(String(32))
    framework: Mapped[str] = mapped_column(String(32))
    queue: Mapped[str] = mapped_column(String(63))
    created_at: Mapped[datetime]
    ended_as: Mapped[str | None] = mapped_column(String(16))  # the job's status once that is for good
