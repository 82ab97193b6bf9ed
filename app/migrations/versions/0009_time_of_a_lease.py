"""How long an attempt has run, as its holder says with every renewal: clocks that jump don't change it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("lease", sa.Column("ran_seconds", sa.Double(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    op.drop_column("lease", "ran_seconds")
