"""What projects may use, what they have used, weights of queues, and nodes that are being cleared for a job."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("project", sa.Column("quota", JSON, nullable=False, server_default=sa.text("'{}'")))
    op.add_column("queue", sa.Column("weight", sa.Double(), nullable=True))
    op.add_column("job", sa.Column("awaits_node", sa.String(63), nullable=False, server_default=sa.text("''")))
    op.create_table(
        "project_usage",
        sa.Column("project", sa.String(63), primary_key=True),
        sa.Column("month", sa.String(7), primary_key=True),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("project_usage")
    op.drop_column("job", "awaits_node")
    op.drop_column("queue", "weight")
    op.drop_column("project", "quota")
