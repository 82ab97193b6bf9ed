"""An index for the jobs that a key has submitted."""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_COLUMNS = [
    *("created_by", "created_at", "id"),
    *("project", "status", "training_type", "framework", "queue", "priority"),
]


def upgrade() -> None:
    op.create_index("ix_job_created_by", "job", _COLUMNS)


def downgrade() -> None:
    op.drop_index("ix_job_created_by", "job")
