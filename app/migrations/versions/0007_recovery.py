"""What recovery by cause remembers of a job and of its attempts, and the wish to preempt."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from app.migrations.checks import replace_check

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

COUNTERS = ("in_place_restarts", "hangs", "host_losses")
BEFORE = "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue')"
AFTER = "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue', 'preempt')"


def upgrade() -> None:
    op.add_column("job", sa.Column("chosen_checkpoint_id", sa.String(length=64), nullable=True))
    op.add_column("job", sa.Column("pause_force", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("job", sa.Column("adjustments", JSON, nullable=False, server_default=sa.text("'{}'")))
    op.add_column("job", sa.Column("excluded_nodes", JSON, nullable=False, server_default=sa.text("'[]'")))
    for column in COUNTERS:
        op.add_column("job", sa.Column(column, sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("attempt", sa.Column("recover_before_downgrade", sa.String(length=48), nullable=True))
    op.add_column("attempt", sa.Column("trained_at", sa.DateTime(timezone=True), nullable=True))
    replace_check("job", "ck_job_known_wish", BEFORE, AFTER)


def downgrade() -> None:
    op.execute("UPDATE job SET requested = NULL WHERE requested = 'preempt'")
    replace_check("job", "ck_job_known_wish", AFTER, BEFORE)
    op.drop_column("attempt", "trained_at")
    op.drop_column("attempt", "recover_before_downgrade")
    for column in ("chosen_checkpoint_id", "pause_force", "adjustments", "excluded_nodes", *COUNTERS):
        op.drop_column("job", column)
