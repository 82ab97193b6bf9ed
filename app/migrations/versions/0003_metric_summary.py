"""Summaries of long metric series, and how busy a job's GPUs were."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metric_summary",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("low_step", sa.Integer(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high_step", sa.Integer(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_metric_summary_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name", "level", "first_step", name="pk_metric_summary"),
    )
    op.add_column("job", sa.Column("metric_summary_step", sa.Integer(), nullable=True))
    op.add_column("job", sa.Column("gpu_util_sum", sa.Double(), nullable=True))
    op.add_column("job", sa.Column("gpu_util_samples", sa.Integer(), nullable=True))


def downgrade() -> None:
    for column in ("gpu_util_samples", "gpu_util_sum", "metric_summary_step"):
        op.drop_column("job", column)
    op.drop_table("metric_summary")
