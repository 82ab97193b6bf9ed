"""The further nodes that are kept for a job on several of them; what a project keeps is found by an index."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("awaits_others", JSON, server_default=sa.text("'[]'"), nullable=False))
    op.create_index("ix_checkpoint_project", "checkpoint", ["project"])


def downgrade() -> None:
    op.drop_index("ix_checkpoint_project", "checkpoint")
    op.drop_column("job", "awaits_others")
