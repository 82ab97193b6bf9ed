"""Labels that administrators give to nodes, quarantined nodes, and what a job's first node presets for it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from app.migrations.checks import replace_check

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
BEFORE = "state IN ('ready', 'draining', 'drained', 'lost')"
AFTER = "state IN ('ready', 'draining', 'drained', 'quarantined', 'lost')"


def upgrade() -> None:
    op.add_column("job", sa.Column("node_defaults", JSON, nullable=True))
    op.add_column("node", sa.Column("admin_labels", JSON, nullable=False, server_default=sa.text("'[]'")))
    op.add_column("node", sa.Column("quarantine_reason", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.create_table(
        "node_fault",
        sa.Column("node", sa.String(63), primary_key=True),
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )
    replace_check("node", "ck_node_known_state", BEFORE, AFTER)


def downgrade() -> None:
    op.execute("UPDATE node SET state = 'drained' WHERE state = 'quarantined'")
    replace_check("node", "ck_node_known_state", AFTER, BEFORE)
    op.drop_table("node_fault")
    op.drop_column("node", "quarantine_reason")
    op.drop_column("node", "admin_labels")
    op.drop_column("job", "node_defaults")
