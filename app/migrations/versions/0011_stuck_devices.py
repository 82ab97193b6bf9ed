"""Devices that a process which nothing can end still holds."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "stuck_device",
        sa.Column("node", sa.String(63), primary_key=True),
        sa.Column("device_index", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("place", sa.String(64), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_told", sa.Boolean(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("stuck_device")
