"""The services that jobs of a project may connect to."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("project", sa.Column("egress", JSON, nullable=False, server_default=sa.text("'[]'")))


def downgrade() -> None:
    op.drop_column("project", "egress")
