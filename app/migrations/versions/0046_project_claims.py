"""Whether jobs of a project may make volume claims."""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("project", sa.Column("claims", sa.String(16), server_default="create", nullable=False))


def downgrade() -> None:
    op.drop_column("project", "claims")
