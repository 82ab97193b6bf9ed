"""Deletions of jobs that were begun, so that one that is cut off is ended."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_deletion",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("artifacts", sa.Boolean(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_deletion_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_deletion"),
    )


def downgrade() -> None:
    op.drop_table("job_deletion")
