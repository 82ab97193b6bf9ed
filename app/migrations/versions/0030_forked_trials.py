"""Trials that begin with another one's checkpoint, decisions about halted trials, and trunks that are not shared."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_BEFORE = "'RUNNING', 'COMPLETED', 'STOPPED', 'FAILED', 'CANCELLED'"


def upgrade() -> None:
    _replace_states(f"{_BEFORE}, 'EXPLOITED'")
    op.add_column("trial", sa.Column("parent_number", sa.Integer(), nullable=True))
    op.add_column("trial", sa.Column("fork_checkpoint_id", sa.String(64), nullable=True))
    op.add_column("trial", sa.Column("fork_step", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("trial_report", sa.Column("decided_seq", sa.Integer(), nullable=True))
    op.execute("UPDATE trial_report SET decided_seq = seq")
    op.add_column("sweep", sa.Column("trunks_refused", sa.Text(), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    op.drop_column("sweep", "trunks_refused")
    op.drop_column("trial_report", "decided_seq")
    for column in ("fork_step", "fork_checkpoint_id", "parent_number"):
        op.drop_column("trial", column)
    op.execute("UPDATE trial SET state = 'STOPPED' WHERE state = 'EXPLOITED'")
    _replace_states(_BEFORE)


def _replace_states(states: str) -> None:
    with op.batch_alter_table("trial") as table:
        table.drop_constraint(op.f("ck_trial_known_state"), type_="check")
        table.create_check_constraint("known_state", f"state IN ({states})")
