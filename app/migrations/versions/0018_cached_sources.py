"""What nodes have in their caches, found by what waiting jobs read."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cached_source",
        sa.Column("source", sa.String(32), primary_key=True),
        sa.Column("node", sa.String(63), sa.ForeignKey("node.name", ondelete="CASCADE"), primary_key=True),
        sa.Column("held_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_cached_source_node", "cached_source", ["node"])


def downgrade() -> None:
    op.drop_table("cached_source")
