"""Batches of requests, and the inference jobs that answer them; runs of graders."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)
_WATCHED = ("INSERT", "UPDATE OF status")
_COUNT = "BEGIN UPDATE change SET number = number + 1; END"
_STATES = (
    "status IN ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')"
)
_LIVE = sa.text("status NOT IN ('failed', 'completed', 'expired', 'cancelled')")


def upgrade() -> None:
    _create_batch()
    op.create_table(
        "batch_job",
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(1024), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_batch_job_batch_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", "model", name="pk_batch_job"),
    )
    op.create_index("ix_batch_job_job_id", "batch_job", ["job_id"])
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    action = "FOR EACH STATEMENT EXECUTE FUNCTION note_change()" if is_postgresql else _COUNT
    for event in _WATCHED:
        op.execute(f"CREATE TRIGGER {_trigger(event)} AFTER {event} ON batch {action}")
    op.add_column("inspection", sa.Column("is_grading", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    of_table = " ON batch" if op.get_bind().dialect.name == "postgresql" else ""
    for event in _WATCHED:
        op.execute(f"DROP TRIGGER {_trigger(event)}{of_table}")
    op.drop_table("batch_job")
    op.drop_table("batch")
    op.execute("DELETE FROM inspection WHERE is_grading")
    op.drop_column("inspection", "is_grading")


def _trigger(event: str) -> str:
    return f"note_batch_{event.partition(' ')[0].lower()}"


def _create_batch() -> None:
    op.create_table(
        "batch",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("submits_as", sa.String(64), nullable=False),
        sa.Column("input_file_id", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("window_seconds", sa.Integer(), nullable=False),
        sa.Column("tags", _JSON, nullable=False),
        sa.Column("parts", _JSON, nullable=False),
        sa.Column("output_expires_seconds", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("pending_reason", sa.Text(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("checked_lines", sa.Integer(), nullable=False),
        sa.Column("models", _JSON, nullable=False),
        sa.Column("problems", _JSON, nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_file_id", sa.String(64), nullable=True),
        sa.Column("error_file_id", sa.String(64), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("in_progress_at", _TIME, nullable=True),
        sa.Column("finalizing_at", _TIME, nullable=True),
        sa.Column("cancelling_at", _TIME, nullable=True),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.CheckConstraint(_STATES, name="known_status"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_batch_project"),
        sa.PrimaryKeyConstraint("id", name="pk_batch"),
    )
    op.create_index("ix_batch_project_id", "batch", ["project", "id"])
    op.create_index("ix_batch_input_file_id", "batch", ["input_file_id"])
    op.create_index("ix_batch_expires_at", "batch", ["expires_at"])
    op.create_index("ix_batch_live", "batch", ["status"], postgresql_where=_LIVE, sqlite_where=_LIVE)
