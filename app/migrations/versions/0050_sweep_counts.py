"""How long suggestions and decisions of sweeps took, and what device time they spared."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweep_count",
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("up_to_ms", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project", "kind", "up_to_ms", name="pk_sweep_count"),
    )


def downgrade() -> None:
    op.drop_table("sweep_count")
