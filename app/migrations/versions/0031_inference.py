"""Shards of the results of inference jobs, and which job an evaluation measures."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "shard",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_record", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("counts", _JSON, nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_shard_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_shard"),
    )
    op.create_index("ix_shard_job_id_created_at", "shard", ["job_id", "created_at"])
    op.add_column("job", sa.Column("evaluated_job_id", sa.String(64), nullable=True))
    op.add_column("job", sa.Column("evaluated_step", sa.Integer(), nullable=True))
    is_evaluation = sa.text("evaluated_job_id IS NOT NULL")
    op.create_index(
        "ix_job_evaluated_job_id",
        "job",
        ["evaluated_job_id"],
        postgresql_where=is_evaluation,
        sqlite_where=is_evaluation,
    )


def downgrade() -> None:
    op.drop_index("ix_job_evaluated_job_id", "job")
    op.drop_column("job", "evaluated_step")
    op.drop_column("job", "evaluated_job_id")
    op.drop_index("ix_shard_job_id_created_at", "shard")
    op.drop_table("shard")
