"""Which devices of a node are linked; not known of those that registered before."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("device", sa.Column("link_group", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("device", "link_group")
