"""Uploaded files, uploads in parts, models with names, and inspections of files."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _create_files()
    _create_uploads()
    _create_models()
    op.add_column("inspection", sa.Column("file_id", sa.String(64), nullable=True))
    op.create_index("ix_inspection_file_id", "inspection", ["file_id"], unique=True)


def downgrade() -> None:
    op.execute("DELETE FROM inspection WHERE file_id IS NOT NULL")
    op.drop_index("ix_inspection_file_id", "inspection")
    op.drop_column("inspection", "file_id")
    for table in ("registered_model", "upload_part", "upload", "file"):
        op.drop_table(table)


def _create_files() -> None:
    op.create_table(
        "file",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_details", sa.Text(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=True),
        sa.Column("shape", sa.String(32), nullable=True),
        sa.Column("job_id", sa.String(64), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.CheckConstraint("status IN ('receiving', 'uploaded', 'processed', 'error')", name="known_status"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_file_project"),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_file_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_file"),
    )
    op.create_index("ix_file_project_id", "file", ["project", "id"])
    op.create_index("ix_file_project_purpose_id", "file", ["project", "purpose", "id"])
    op.create_index("ix_file_job_id", "file", ["job_id"])
    op.create_index("ix_file_expires_at", "file", ["expires_at"])


def _create_uploads() -> None:
    op.create_table(
        "upload",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("filename", sa.String(255), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("mime_type", sa.String(255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("file_id", sa.String(64), nullable=True),
        sa.Column("file_expires_seconds", sa.Integer(), nullable=True),
        sa.Column("completing_since", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.CheckConstraint("status IN ('pending', 'completed', 'cancelled', 'expired')", name="known_status"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_upload_project"),
        sa.PrimaryKeyConstraint("id", name="pk_upload"),
    )
    op.create_index("ix_upload_expires_at", "upload", ["expires_at"])
    op.create_table(
        "upload_part",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("upload_id", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["upload_id"], ["upload.id"], name="fk_upload_part_upload_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_upload_part"),
    )
    op.create_index("ix_upload_part_upload_id", "upload_part", ["upload_id"])


def _create_models() -> None:
    op.create_table(
        "registered_model",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("project", sa.String(63), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("base", sa.String(255), nullable=True),
        sa.Column("job_id", sa.String(64), nullable=True),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("removed_at", _TIME, nullable=True),
        sa.CheckConstraint("kind IN ('base', 'fine_tune')", name="known_kind"),
        sa.CheckConstraint("kind = 'base' OR job_id IS NOT NULL", name="fine_tune_has_job"),
        sa.CheckConstraint("kind = 'fine_tune' OR location IS NOT NULL", name="base_has_location"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_registered_model_project"),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_registered_model_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("name", name="pk_registered_model"),
        sa.UniqueConstraint("job_id", name="uq_registered_model_job_id"),
    )
    op.create_index("ix_registered_model_project", "registered_model", ["project"])
