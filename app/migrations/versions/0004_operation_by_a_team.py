"""What a team needs to operate it: the audit trail, webhooks, queues paused and limited, keys that rotate."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=True),
        sa.Column("actor", sa.String(length=96), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=128), nullable=False),
        sa.Column("outcome", sa.String(length=8), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.CheckConstraint("outcome IN ('done', 'denied')", name=op.f("ck_audit_entry_known_outcome")),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entry"),
    )
    op.create_index("ix_audit_entry_at", "audit_entry", ["at", "id"])
    op.create_index("ix_audit_entry_project", "audit_entry", ["project", "at", "id"])
    op.create_index("ix_audit_entry_target", "audit_entry", ["target", "at", "id"])
    op.create_table(
        "webhook",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("event_types", JSON, nullable=False),
        sa.Column("sealed_secret", sa.Text(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(length=96), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("turn", sa.String(length=64), nullable=False),
        sa.Column("turn_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("rests_until", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_webhook_project", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook"),
    )
    op.create_index("ix_webhook_project", "webhook", ["project"])
    op.create_table(
        "webhook_delivery",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("webhook_id", sa.String(length=64), nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("event_type", sa.String(length=48), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("state", sa.String(length=9), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'delivered', 'given_up')", name=op.f("ck_webhook_delivery_known_state")
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhook.id"], name="fk_webhook_delivery_webhook_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_delivery"),
    )
    op.create_index("ix_webhook_delivery_webhook_id", "webhook_delivery", ["webhook_id", "id"])
    waiting = sa.text("state = 'waiting'")
    op.create_index(
        "ix_webhook_delivery_waiting",
        "webhook_delivery",
        ["webhook_id", "id"],
        postgresql_where=waiting,
        sqlite_where=waiting,
    )
    op.create_index("ix_webhook_delivery_finished_at", "webhook_delivery", ["finished_at"])
    op.create_table(
        "queue_wait",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("queue", sa.String(length=63), nullable=False),
        sa.Column("up_to_seconds", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("waited_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project", "queue", "up_to_seconds", name="pk_queue_wait"),
    )
    op.create_index("ix_job_queue_status", "job", ["queue", "status", "project"])
    op.create_index("ix_job_created", "job", ["created_at", "id"])
    op.create_index("ix_job_status_created", "job", ["status", "created_at", "id"])
    op.add_column("queue", sa.Column("is_paused", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("queue", sa.Column("max_running_jobs", sa.Integer(), nullable=True))
    op.add_column("queue", sa.Column("max_waiting_jobs", sa.Integer(), nullable=True))
    op.add_column("project", sa.Column("description", sa.String(length=255), nullable=False, server_default=""))
    op.add_column("api_key", sa.Column("replaced_by", sa.String(length=64), nullable=True))
    op.add_column("attempt", sa.Column("can_checkpoint", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("attempt", "can_checkpoint")
    op.drop_column("api_key", "replaced_by")
    op.drop_column("project", "description")
    for column in ("max_waiting_jobs", "max_running_jobs", "is_paused"):
        op.drop_column("queue", column)
    op.drop_index("ix_job_status_created", "job")
    op.drop_index("ix_job_created", "job")
    op.drop_index("ix_job_queue_status", "job")
    for table in ("queue_wait", "webhook_delivery", "webhook", "audit_entry"):
        op.drop_table(table)
