"""Webhooks that send emails: their recipients, and whom a delivery has reached."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

_LIST = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("webhook", sa.Column("recipients", _LIST, server_default="[]", nullable=False))
    op.add_column("webhook_delivery", sa.Column("reached", _LIST, server_default="[]", nullable=False))


def downgrade() -> None:
    # Without recipients they would be posts to nowhere. Deliveries first: SQLite does not cascade while it migrates.
    op.execute("DELETE FROM webhook_delivery WHERE webhook_id IN (SELECT id FROM webhook WHERE format = 'email')")
    op.execute("DELETE FROM webhook WHERE format = 'email'")
    op.drop_column("webhook_delivery", "reached")
    op.drop_column("webhook", "recipients")
