"""The form in which a webhook's receiver reads events."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook", sa.Column("format", sa.String(16), server_default="json", nullable=False))


def downgrade() -> None:
    op.drop_column("webhook", "format")
