"""The processor architecture of nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("arch", sa.String(32), server_default=sa.text("''"), nullable=False))


def downgrade() -> None:
    op.drop_column("node", "arch")
