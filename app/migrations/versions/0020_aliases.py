"""What a dialect calls a job; those that were there before have no such names."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("alias", sa.String(320), nullable=True))
    given = sa.text("alias IS NOT NULL")
    op.create_index("uq_job_alias", "job", ["alias"], unique=True, postgresql_where=given, sqlite_where=given)


def downgrade() -> None:
    op.drop_index("uq_job_alias", table_name="job")
    op.drop_column("job", "alias")
