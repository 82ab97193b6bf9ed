"""An index for the jobs that failed lately."""

from alembic import op
from sqlalchemy import text

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

_FAILED = text("status = 'FAILED'")


def upgrade() -> None:
    op.create_index("ix_job_failed", "job", ["finished_at"], postgresql_where=_FAILED, sqlite_where=_FAILED)


def downgrade() -> None:
    op.drop_index("ix_job_failed", "job")
