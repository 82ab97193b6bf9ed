"""When a node was lost."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("node", "lost_at")
