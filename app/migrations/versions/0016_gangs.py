"""Attempts on several nodes: a lease for each, where their ranks meet, and why they all end."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

LIVE = sa.text("released_at IS NULL")


def upgrade() -> None:
    op.add_column("lease", sa.Column("part", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("attempt", sa.Column("rendezvous", JSON, nullable=True))
    op.add_column("attempt", sa.Column("ending", JSON, nullable=True))
    _one_live_lease_per(["job_id", "part"])


def downgrade() -> None:
    """Refused by the former key while a job runs on several nodes: end those jobs first."""
    _one_live_lease_per(["job_id"])
    op.drop_column("attempt", "ending")
    op.drop_column("attempt", "rendezvous")
    op.drop_column("lease", "part")


def _one_live_lease_per(columns: list[str]) -> None:
    op.drop_index("uq_lease_live_job", "lease")
    op.create_index("uq_lease_live_job", "lease", columns, unique=True, postgresql_where=LIVE, sqlite_where=LIVE)
