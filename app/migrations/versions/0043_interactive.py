"""Interactive access to running jobs: endpoints, sessions, readiness, and sandboxes that stay after a failure."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "interactive_endpoint",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("first_rank", sa.Integer(), nullable=False),
        sa.Column("ranks", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_interactive_endpoint_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "part", name="pk_interactive_endpoint"),
    )
    op.create_table(
        "interactive_session",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("gateway_id", sa.String(64), nullable=False),
        sa.Column("recorded", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("bytes_in", sa.BigInteger(), nullable=False),
        sa.Column("bytes_out", sa.BigInteger(), nullable=False),
        sa.Column("recording_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_interactive_session_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_interactive_session"),
    )
    op.create_index("ix_interactive_session_job", "interactive_session", ["job_id", "id"])
    is_open = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_interactive_session_open", "interactive_session", ["id"], postgresql_where=is_open, sqlite_where=is_open
    )
    op.add_column("job", sa.Column("interactive_attempt", sa.Integer(), nullable=True))
    op.add_column("job", sa.Column("ready", sa.Boolean(), nullable=True))
    op.add_column("job", sa.Column("kept_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("job", sa.Column("release_attempt", sa.Integer(), nullable=True))
    op.add_column("web_user", sa.Column("email_verified", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("web_user", sa.Column("groups", _JSON, server_default=sa.text("'[]'"), nullable=False))
    op.add_column("project", sa.Column("sessions", sa.String(16), server_default="allowed", nullable=False))


def downgrade() -> None:
    op.drop_column("project", "sessions")
    op.drop_column("web_user", "groups")
    op.drop_column("web_user", "email_verified")
    op.drop_column("job", "release_attempt")
    op.drop_column("job", "kept_until")
    op.drop_column("job", "ready")
    op.drop_column("job", "interactive_attempt")
    op.drop_table("interactive_session")
    op.drop_table("interactive_endpoint")
