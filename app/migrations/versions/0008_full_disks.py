"""What is remembered of a job that waits for room on a disk."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("disk_waits", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("job", sa.Column("no_room_on", JSON, nullable=False, server_default=sa.text("'[]'")))


def downgrade() -> None:
    op.drop_column("job", "no_room_on")
    op.drop_column("job", "disk_waits")
