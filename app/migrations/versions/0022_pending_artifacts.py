"""Artifacts that are written before their job has ended; those that were there before are seen."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("artifact", sa.Column("pending", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    op.execute(sa.text("DELETE FROM artifact WHERE pending"))
    op.drop_column("artifact", "pending")
