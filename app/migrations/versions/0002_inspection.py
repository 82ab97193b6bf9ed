"""Looks at model and data before a job waits for devices."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inspection",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=True),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("document", JSON, nullable=True),
        sa.Column("sealed_secrets", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("holder", sa.String(length=160), nullable=False),
        sa.Column("counter", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=True),
        sa.Column("report", JSON, nullable=True),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('waiting', 'running', 'done')", name=op.f("ck_inspection_known_state")),
        sa.CheckConstraint(
            "verdict IS NULL OR verdict IN ('passed', 'failed', 'left')", name=op.f("ck_inspection_known_verdict")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_inspection_job_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_inspection_project"),
        sa.PrimaryKeyConstraint("id", name="pk_inspection"),
        sa.UniqueConstraint("job_id", name="uq_inspection_job_id"),
    )
    op.create_index("ix_inspection_state", "inspection", ["state", "id"], unique=False)
    op.create_index("ix_inspection_fingerprint", "inspection", ["fingerprint", "finished_at"], unique=False)
    op.create_index("ix_inspection_request_hash", "inspection", ["request_hash"], unique=False)


def downgrade() -> None:
    op.drop_table("inspection")
