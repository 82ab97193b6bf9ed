"""People of an identity provider, and the keys that are theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "web_user",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("email", sa.String(255), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_web_user"),
        sa.UniqueConstraint("issuer", "subject", name="uq_web_user_issuer_subject"),
    )
    op.add_column("api_key", sa.Column("user_id", sa.String(64), nullable=True))
    op.create_index("ix_api_key_user_id", "api_key", ["user_id"])


def downgrade() -> None:
    op.drop_index("ix_api_key_user_id", "api_key")
    op.drop_column("api_key", "user_id")
    op.drop_table("web_user")
