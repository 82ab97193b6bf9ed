"""Permissions of other projects to ask fine-tuned models."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_permission",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["model"], ["registered_model.name"], name="fk_model_permission_model", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_model_permission_project"),
        sa.PrimaryKeyConstraint("id", name="pk_model_permission"),
    )
    op.create_index("uq_model_permission_project_name", "model_permission", ["project", "name"], unique=True)
    op.create_index("ix_model_permission_model", "model_permission", ["model"])
    op.create_index("ix_model_permission_name_id", "model_permission", ["name", "id"])


def downgrade() -> None:
    op.drop_table("model_permission")
