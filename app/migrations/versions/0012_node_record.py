"""What became of the attempts of a node, by which the planner knows how far it can be relied on."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    record = op.create_table(
        "node_record",
        sa.Column("node", sa.String(63), primary_key=True),
        sa.Column("reputation", sa.Double(), nullable=False),
        sa.Column("completions", sa.BigInteger(), nullable=False),
        sa.Column("disconnects", sa.BigInteger(), nullable=False),
        sa.Column("faults", sa.BigInteger(), nullable=False),
    )
    node = sa.table("node", sa.column("name"))
    new = sa.select(node.c.name, sa.literal(1.0), sa.literal(0), sa.literal(0), sa.literal(0))
    op.execute(record.insert().from_select(["node", "reputation", "completions", "disconnects", "faults"], new))


def downgrade() -> None:
    op.drop_table("node_record")
