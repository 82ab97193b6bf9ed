"""Base models that training jobs of OME name."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "base_model",
        sa.Column("project", sa.String(63), primary_key=True),
        sa.Column("name", sa.String(253), primary_key=True),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("labels", _JSON, nullable=False),
        sa.Column("annotations", _JSON, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("id", name="uq_base_model_id"),
    )


def downgrade() -> None:
    op.drop_table("base_model")
