"""Everything that a job needs from submission to report."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

STATES = (
    "PENDING",
    "QUEUED",
    "SCHEDULING",
    "PREPARING",
    "TRAINING",
    "CHECKPOINTING",
    "EVALUATING",
    "EXPORTING",
    "COMPLETED",
    "PAUSED",
    "CANCELLED",
    "FAILED",
    "PREEMPTED",
)
KNOWN_STATUS = "status IN (" + ", ".join(f"'{state}'" for state in STATES) + ")"

TABLES = (
    "idempotent_reply",
    "node",
    "process_beat",
    "project",
    "queue",
    "api_key",
    "device",
    "job",
    "artifact",
    "attempt",
    "checkpoint",
    "job_event",
    "job_label",
    "lease",
    "metric",
    "reservation",
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotent_reply",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("location", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project", "key_id", "idempotency_key", name="pk_idempotent_reply"),
    )
    op.create_index("ix_idempotent_reply_created_at", "idempotent_reply", ["created_at"], unique=False)
    op.create_table(
        "node",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("capabilities", JSON, nullable=False),
        sa.Column("cpu_cores", sa.Integer(), nullable=False),
        sa.Column("ram_mb", sa.Integer(), nullable=False),
        sa.Column("storage_mb", sa.Integer(), nullable=False),
        sa.Column("limits", JSON, nullable=False),
        sa.Column("sandbox", sa.String(length=16), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("heartbeat", sa.Integer(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('ready', 'draining', 'drained', 'lost')", name=op.f("ck_node_known_state")),
        sa.PrimaryKeyConstraint("name", name="pk_node"),
    )
    op.create_table(
        "process_beat",
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("holder", sa.String(length=160), nullable=False),
        sa.Column("counter", sa.Integer(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_process_beat"),
    )
    op.create_table(
        "project",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_project"),
    )
    op.create_table(
        "queue",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_queue"),
    )
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=True),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("prefix", sa.String(length=32), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("access_key", sa.String(length=64), nullable=False),
        sa.Column("sealed_secret_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_api_key_project"),
        sa.PrimaryKeyConstraint("id", name="pk_api_key"),
        sa.UniqueConstraint("access_key", name="uq_api_key_access_key"),
        sa.UniqueConstraint("prefix", name="uq_api_key_prefix"),
    )
    op.create_index("ix_api_key_project", "api_key", ["project"], unique=False)
    op.create_table(
        "device",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_device_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "index", name="pk_device"),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("sealed_secrets", sa.Text(), nullable=False),
        sa.Column("foreign", JSON, nullable=False),
        sa.Column("training_type", sa.String(length=32), nullable=False),
        sa.Column("framework", sa.String(length=32), nullable=False),
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("max_runtime_seconds", sa.Integer(), nullable=True),
        sa.Column("parent_job_id", sa.String(length=64), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=False),
        sa.Column("pending_reason", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("mirrored_version", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("metric_seq", sa.BigInteger(), nullable=False),
        sa.Column("requested", sa.String(length=16), nullable=True),
        sa.Column("requested_reason", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.String(length=64), nullable=False),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("pause_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("pause_saves", sa.Boolean(), nullable=False),
        sa.Column("checkpoint_requests", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("retries_used", sa.Integer(), nullable=False),
        sa.Column("not_before_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("threads_per_rank", sa.Integer(), nullable=True),
        sa.Column("node_names", JSON, nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("current_step", sa.Integer(), nullable=False),
        sa.Column("total_steps", sa.Integer(), nullable=True),
        sa.Column("current_epoch", sa.Double(), nullable=False),
        sa.Column("total_epochs", sa.Double(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("eta_seconds", sa.Double(), nullable=True),
        sa.Column("elapsed_seconds", sa.Double(), nullable=False),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
        sa.Column("latest_metrics", JSON, nullable=False),
        sa.Column("latest_checkpoint_id", sa.String(length=64), nullable=True),
        sa.Column("best_checkpoint_id", sa.String(length=64), nullable=True),
        sa.Column("resume_checkpoint_id", sa.String(length=64), nullable=True),
        sa.Column("error_type", sa.String(length=32), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_stack", sa.Text(), nullable=True),
        sa.Column("report", JSON, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue')", name=op.f("ck_job_known_wish")
        ),
        sa.CheckConstraint(KNOWN_STATUS, name=op.f("ck_job_known_status")),
        sa.CheckConstraint("priority BETWEEN 0 AND 10", name=op.f("ck_job_priority_range")),
        sa.CheckConstraint("progress BETWEEN 0 AND 1", name=op.f("ck_job_progress_range")),
        sa.ForeignKeyConstraint(["parent_job_id"], ["job.id"], name="fk_job_parent_job_id"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_job_project"),
        sa.ForeignKeyConstraint(["queue"], ["queue.name"], name="fk_job_queue"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
    )
    op.create_index("ix_job_parent_job_id", "job", ["parent_job_id"], unique=False)
    op.create_index("ix_job_project_created", "job", ["project", "created_at", "id"], unique=False)
    op.create_index("ix_job_project_name", "job", ["project", "name", "id"], unique=False)
    op.create_index("ix_job_project_priority", "job", ["project", "priority", "id"], unique=False)
    op.create_index("ix_job_project_status", "job", ["project", "status", "created_at", "id"], unique=False)
    op.create_index("ix_job_resume_checkpoint_id", "job", ["resume_checkpoint_id"], unique=False)
    op.create_index("ix_job_status_order", "job", ["status", "priority", "queued_at"], unique=False)
    op.create_index(
        "ix_job_unmirrored",
        "job",
        ["id"],
        unique=False,
        postgresql_where=sa.text("mirrored_version < version"),
        sqlite_where=sa.text("mirrored_version < version"),
    )
    op.create_table(
        "artifact",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_artifact_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "path", name="pk_artifact"),
    )
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node_names", JSON, nullable=False),
        sa.Column("device_indices", JSON, nullable=False),
        sa.Column("device_type", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("start_type", sa.String(length=32), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("end_related_task", sa.String(length=64), nullable=True),
        sa.Column("end_recover", sa.String(length=48), nullable=True),
        sa.Column("cause", sa.String(length=32), nullable=True),
        sa.Column("policy", sa.String(length=48), nullable=True),
        sa.Column("start_step", sa.Integer(), nullable=False),
        sa.Column("end_step", sa.Integer(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("lost_steps", sa.Integer(), nullable=True),
        sa.Column("detect_seconds", sa.Double(), nullable=True),
        sa.Column("recover_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_attempt_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_attempt"),
    )
    op.create_table(
        "checkpoint",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Double(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("threads_per_rank", sa.Integer(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("metrics", JSON, nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("is_best", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_checkpoint_job_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_checkpoint_project"),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoint"),
    )
    op.create_index("ix_checkpoint_job_step", "checkpoint", ["job_id", "step"], unique=False)
    op.create_table(
        "job_event",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("type", sa.String(length=48), nullable=False),
        sa.Column("from_status", sa.String(length=16), nullable=True),
        sa.Column("to_status", sa.String(length=16), nullable=True),
        sa.Column("actor", sa.String(length=96), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_event_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_job_event"),
        sa.UniqueConstraint("job_id", "seq", name="uq_job_event_job_id_seq"),
    )
    op.create_table(
        "job_label",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_label_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_label"),
    )
    op.create_index("ix_job_label_key_value", "job_label", ["key", "value", "job_id"], unique=False)
    op.create_table(
        "lease",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("counter", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("supervisor_pid", sa.Integer(), nullable=True),
        sa.Column("supervisor_started", sa.BigInteger(), nullable=True),
        sa.Column("boot_id", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_lease_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
    )
    op.create_index("ix_lease_job_id", "lease", ["job_id"], unique=False)
    op.create_index(
        "ix_lease_live_node",
        "lease",
        ["node"],
        unique=False,
        postgresql_where=sa.text("released_at IS NULL"),
        sqlite_where=sa.text("released_at IS NULL"),
    )
    op.create_index(
        "uq_lease_live_job",
        "lease",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("released_at IS NULL"),
        sqlite_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "metric",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("special", sa.String(length=9), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_metric_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name", "step", name="pk_metric"),
    )
    op.create_index("ix_metric_job_seq", "metric", ["job_id", "seq"], unique=False)
    op.create_table(
        "reservation",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_reservation_job_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["node", "device_index"], ["device.node", "device.index"], name="fk_reservation_node_device_index"
        ),
        sa.PrimaryKeyConstraint("node", "device_index", name="pk_reservation"),
    )
    op.create_index("ix_reservation_job_id", "reservation", ["job_id"], unique=False)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
