"""Limits of keys for requests to models, projects that make services or not, and times to first tokens."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_key", sa.Column("requests_per_minute", sa.Integer(), nullable=True))
    op.add_column("api_key", sa.Column("tokens_per_minute", sa.Integer(), nullable=True))
    counts = sa.JSON().with_variant(JSONB(), "postgresql")
    op.add_column("service_load", sa.Column("first_tokens", counts, server_default="[]", nullable=False))
    op.add_column("project", sa.Column("auto_services", sa.String(16), server_default="default", nullable=False))


def downgrade() -> None:
    op.drop_column("project", "auto_services")
    op.drop_column("service_load", "first_tokens")
    op.drop_column("api_key", "tokens_per_minute")
    op.drop_column("api_key", "requests_per_minute")
