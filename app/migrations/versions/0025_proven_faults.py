"""Which faults of nodes are proven, and an index of attempts whose outcome could not be written."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_OURS = sa.text("cause = 'OUTCOME_ERROR'")


def upgrade() -> None:
    # What stands there has been counted already.
    op.add_column("node_fault", sa.Column("is_proven", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.create_index("ix_attempt_outcome_error", "attempt", ["ended_at"], postgresql_where=_OURS, sqlite_where=_OURS)


def downgrade() -> None:
    op.drop_index("ix_attempt_outcome_error", "attempt")
    op.execute(sa.text("DELETE FROM node_fault WHERE NOT is_proven"))
    op.drop_column("node_fault", "is_proven")
