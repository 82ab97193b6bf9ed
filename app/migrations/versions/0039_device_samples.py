"""What the machines of nodes and their devices did, minute by minute."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "node_sample",
        sa.Column("node", sa.String(63), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cpu_percent", sa.Double(), nullable=True),
        sa.Column("ram_used_mb", sa.Integer(), nullable=True),
        sa.Column("devices", JSON, nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name="fk_node_sample_node", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "at", name="pk_node_sample"),
    )
    op.create_index("ix_node_sample_at", "node_sample", ["at"])


def downgrade() -> None:
    op.drop_table("node_sample")
