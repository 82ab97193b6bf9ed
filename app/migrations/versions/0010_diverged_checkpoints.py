"""Checkpoints that their job went back behind, because its loss had gone wrong, and that are kept for other jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("diverged", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("checkpoint", "diverged")
