"""Projects say which images their jobs may use."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    sources = sa.JSON().with_variant(JSONB(), "postgresql")
    op.add_column("project", sa.Column("image_sources", sources, server_default="[]", nullable=False))
    op.add_column("project", sa.Column("image_digests", sa.String(16), server_default="optional", nullable=False))


def downgrade() -> None:
    op.drop_column("project", "image_digests")
    op.drop_column("project", "image_sources")
