"""A job: its specification, state, control requests and newest progress."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.inference import kind_of
from app.domain.spec.model import JobDocument, TrainingConfig
from app.models.base import ID, Base, utc_now

_STATES = ", ".join(f"'{state}'" for state in JobState)
_ENDS = ", ".join(f"'{state}'" for state in JobState if state in TERMINAL)
# The C collation: prefix queries can use the index, and names sort as in SQLite.
_NAME = String(128).with_variant(String(128, collation="C"), "postgresql")
# Filter and sort columns of lists, appended to indexes to make them covering.
_LISTED = ("project", "status", "training_type", "framework", "queue", "priority", "created_at")


def _list_index(name: str, *columns: str) -> Index:
    """A covering index for lists with one filter or order; further filters are evaluated within the index."""
    return Index(name, *columns, *(column for column in _LISTED if column not in columns))


def _not_null_index(name: str, column: str) -> Index:
    """A partial index for references that few jobs have."""
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
            "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue', 'preempt', 'drain')", name="known_wish"
        ),
        _list_index("ix_job_created", "created_at", "id", "name"),
        _list_index("ix_job_project_created", "project", "created_at", "id", "name"),
        _list_index("ix_job_status_created", "status", "created_at", "id"),
        _list_index("ix_job_created_by", "created_by", "created_at", "id"),
        _list_index("ix_job_training_type", "training_type", "created_at", "id"),
        _list_index("ix_job_framework", "framework", "created_at", "id"),
        _list_index("ix_job_name", "name", "id"),
        _list_index("ix_job_priority", "priority", "id"),
        Index(
            "uq_job_alias",
            "alias",
            unique=True,
            postgresql_where=text("alias IS NOT NULL"),
            sqlite_where=text("alias IS NOT NULL"),
        ),
        _not_null_index("ix_job_parent_job_id", "parent_job_id"),
        _not_null_index("ix_job_sweep_id", "sweep_id"),
        _not_null_index("ix_job_evaluated_job_id", "evaluated_job_id"),
        _not_null_index("ix_job_resume_checkpoint_id", "resume_checkpoint_id"),
        _not_null_index("ix_job_not_before_at", "not_before_at"),
        Index("ix_job_status_order", "status", "priority", "queued_at"),
        Index(
            "ix_job_failed",
            "finished_at",
            postgresql_where=text("status = 'FAILED'"),
            sqlite_where=text("status = 'FAILED'"),
        ),
        # Counts of jobs by queue, state and project, by index-only scans.
        Index("ix_job_queue_status", "queue", "status", "project"),
        # The result mirror's query for changed jobs must not scan finished jobs.
        Index(
            "ix_job_unmirrored",
            "id",
            postgresql_where=text("mirrored_version < version"),
            sqlite_where=text("mirrored_version < version"),
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("project.name"))
    created_by: Mapped[str] = mapped_column(ID, default="")
    name: Mapped[str] = mapped_column(_NAME)
    labels: Mapped[dict[str, str]] = mapped_column(default=dict)
    spec: Mapped[dict[str, Any]]  # as submitted, defaults filled in, secrets replaced by "***"
    sealed_secrets: Mapped[str] = mapped_column(Text, default="")  # encrypted JSON {dotted path: value}
    foreign: Mapped[dict[str, Any]] = mapped_column(default=dict)  # request fields that a dialect must return
    # The job's name in a dialect with its own names: `dialect:project:name`.
    alias: Mapped[str | None] = mapped_column(String(320))
    training_type: Mapped[str] = mapped_column(String(32))  # for other kinds than training: inference.TYPES
    framework: Mapped[str] = mapped_column(String(32))
    queue: Mapped[str] = mapped_column(ForeignKey("queue.name"))
    priority: Mapped[int]
    max_retries: Mapped[int] = mapped_column(default=TrainingConfig.max_retries)
    max_runtime_seconds: Mapped[int | None]
    parent_job_id: Mapped[str | None] = mapped_column(ForeignKey("job.id"))
    sweep_id: Mapped[str | None] = mapped_column(ID)  # whose trial it is; no foreign key: SQLite can't add one

    # Of an evaluation: the job that made its model, and the step of the checkpoint (None: the result).
    evaluated_job_id: Mapped[str | None] = mapped_column(ID)  # no foreign key: SQLite can't add one
    evaluated_step: Mapped[int | None]

    status: Mapped[str] = mapped_column(String(16), default=JobState.PENDING)
    status_reason: Mapped[str] = mapped_column(Text, default="")
    pending_reason: Mapped[str] = mapped_column(Text, default="")
    version: Mapped[int] = mapped_column(default=1)
    mirrored_version: Mapped[int] = mapped_column(default=0)
    fence: Mapped[int] = mapped_column(default=0)  # the newest fencing token; writers with an older one are stale
    event_seq: Mapped[int] = mapped_column(default=0)
    metric_seq: Mapped[int] = mapped_column(BigInteger, default=0)  # the newest sequence number of its metric points

    # Control requests are columns, not states. `requested` is what the supervisor must carry out.
    requested: Mapped[str | None] = mapped_column(String(16))
    requested_reason: Mapped[str] = mapped_column(Text, default="")
    requested_by: Mapped[str] = mapped_column(ID, default="")
    cancel_requested_at: Mapped[datetime | None]
    pause_requested_at: Mapped[datetime | None]
    pause_saves: Mapped[bool] = mapped_column(default=True)
    pause_force: Mapped[bool] = mapped_column(default=False, server_default=false())  # stop also if the save fails
    checkpoint_requests: Mapped[int] = mapped_column(default=0)  # incremented by each request to save a checkpoint
    interactive_attempt: Mapped[int | None]  # the attempt whose sandbox people asked to reach
    release_attempt: Mapped[int | None]  # the attempt whose sandbox stayed after a failure, and may go now

    ready: Mapped[bool | None]  # by its readiness probe; None: it has none, or has not answered in this attempt
    kept_until: Mapped[datetime | None]  # its script has failed, and the sandbox stays until then

    attempt: Mapped[int] = mapped_column(default=0)
    # Recovery counters, reset by each checkpoint that is further than all before.
    retries_used: Mapped[int] = mapped_column(default=0)  # failures
    in_place_restarts: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    hangs: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    host_losses: Mapped[int] = mapped_column(default=0, server_default=text("0"))  # crashes of node or supervisor
    excluded_nodes: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))  # suspected nodes
    disk_waits: Mapped[int] = mapped_column(default=0, server_default=text("0"))  # waits for space on a full disk
    no_room_on: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))  # full nodes, newest last
    awaits_node: Mapped[str] = mapped_column(String(63), default="", server_default=text("''"))  # its reserved node
    awaits_others: Mapped[list[str]] = mapped_column(
        default=list, server_default=text("'[]'")
    )  # of a gang; if awaits_node
    # Automatic adjustments by recovery: batch_halvings, learning_rate_factor, rollbacks.
    adjustments: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    not_before_at: Mapped[datetime | None]  # backoff after a transient failure
    threads_per_rank: Mapped[int | None]  # fixed by the first attempt: another number changes results in the last bit
    # Defaults of the first attempt's node for unset fields, fixed for the same reason.
    node_defaults: Mapped[dict[str, Any] | None]
    node_names: Mapped[list[str]] = mapped_column(default=list)

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
    # The newest step covered by a metric summary: later points need no summary lookup.
    metric_summary_step: Mapped[int | None]
    latest_metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    latest_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    best_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    # The checkpoint that the first attempt starts from; retained until the job has ended.
    resume_checkpoint_id: Mapped[str | None] = mapped_column(ID)
    # The checkpoint that the next attempt starts from instead of the newest, until it saves its own.
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
    def document(self) -> JobDocument:
        return JobDocument.from_json(self.spec)

    @property
    def kind(self) -> str:
        """One of inference.KINDS."""
        return kind_of(self.training_type)

    @property
    def state(self) -> JobState:
        return JobState(self.status)

    def mark_changed(self) -> None:
        """Increment the version and update the change time, by which readers detect changes."""
        self.version += 1
        self.updated_at = utc_now()


class JobLabel(Base):
    """One label of a job as a row, so that label filters use an index.

    Holds copies of the job's immutable filter columns, because joining the jobs of a frequent label is slow.
    """

    __tablename__ = "job_label"
    __table_args__ = (
        CheckConstraint(f"ended_as IN ({_ENDS})", name="known_end"),
        Index(
            "ix_job_label_key_value",
            "key",
            "value",
            "created_at",
            "job_id",
            "project",
            "ended_as",
            "training_type",
            "framework",
            "queue",
        ),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[str] = mapped_column(String(255))
    project: Mapped[str] = mapped_column(String(63))
    training_type: Mapped[str] = mapped_column(String(32))
    framework: Mapped[str] = mapped_column(String(32))
    queue: Mapped[str] = mapped_column(String(63))
    created_at: Mapped[datetime]
    ended_as: Mapped[str | None] = mapped_column(String(16))  # the job's terminal status
