"""Indexes for every filter and order of the lists of jobs and of the audit trail."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

LISTED = ["project", "status", "training_type", "framework", "queue", "priority", "created_at"]
# Name → what its lists are found and sorted by; what else lists filter and sort by follows.
JOB_INDEXES = {
    "ix_job_created": ["created_at", "id", "name"],
    "ix_job_project_created": ["project", "created_at", "id", "name"],
    "ix_job_status_created": ["status", "created_at", "id"],
    "ix_job_training_type": ["training_type", "created_at", "id"],
    "ix_job_framework": ["framework", "created_at", "id"],
    "ix_job_name": ["name", "id"],
    "ix_job_priority": ["priority", "id"],
}
FORMER_JOB_INDEXES = {
    "ix_job_created": ["created_at", "id"],
    "ix_job_project_created": ["project", "created_at", "id"],
    "ix_job_project_status": ["project", "status", "created_at", "id"],
    "ix_job_project_name": ["project", "name", "id"],
    "ix_job_project_priority": ["project", "priority", "id"],
    "ix_job_status_created": ["status", "created_at", "id"],
}
AUDIT_INDEXES = {
    "ix_audit_entry_at": ["at", "id", "action"],
    "ix_audit_entry_project": ["project", "at", "id", "action"],
    "ix_audit_entry_actor": ["actor", "at", "id", "project", "action", "outcome"],
}
FORMER_AUDIT_INDEXES = {"ix_audit_entry_at": ["at", "id"], "ix_audit_entry_project": ["project", "at", "id"]}
# Name → columns, and the rows that it is for.
PARTIAL_AUDIT_INDEXES = {
    "ix_audit_entry_action": (["action", "at", "id", "project"], "action NOT IN ('job.status', 'job.submit')"),
    "ix_audit_entry_denied": (["at", "id", "project", "action", "actor"], "outcome = 'denied'"),
}
REFERENCES = ("parent_job_id", "resume_checkpoint_id")
LABEL_INDEX = "ix_job_label_key_value"
LABEL_COLUMNS = ["key", "value", "created_at", "job_id", "project", "ended_as", "training_type", "framework", "queue"]
COPIED: dict[str, sa.types.TypeEngine[Any]] = {
    "project": sa.String(length=63),
    "training_type": sa.String(length=32),
    "framework": sa.String(length=32),
    "queue": sa.String(length=63),
    "created_at": sa.DateTime(timezone=True),
}
ENDS = "'COMPLETED', 'CANCELLED', 'FAILED', 'PREEMPTED'"


def upgrade() -> None:
    _extend_labels()
    for name in FORMER_JOB_INDEXES:
        op.drop_index(name, "job")
    _collate_names("C")
    for name, columns in JOB_INDEXES.items():
        op.create_index(name, "job", columns + [column for column in LISTED if column not in columns])
    for column in REFERENCES:
        given = sa.text(f"{column} IS NOT NULL")
        op.drop_index(f"ix_job_{column}", "job")
        op.create_index(f"ix_job_{column}", "job", [column], postgresql_where=given, sqlite_where=given)
    for name in FORMER_AUDIT_INDEXES:
        op.drop_index(name, "audit_entry")
    for name, columns in AUDIT_INDEXES.items():
        op.create_index(name, "audit_entry", columns)
    for name, (columns, condition) in PARTIAL_AUDIT_INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, "audit_entry", columns, postgresql_where=where, sqlite_where=where)


def downgrade() -> None:
    for name in [*AUDIT_INDEXES, *PARTIAL_AUDIT_INDEXES]:
        op.drop_index(name, "audit_entry")
    for name, columns in FORMER_AUDIT_INDEXES.items():
        op.create_index(name, "audit_entry", columns)
    for name in JOB_INDEXES:
        op.drop_index(name, "job")
    _collate_names("default")
    for name, columns in FORMER_JOB_INDEXES.items():
        op.create_index(name, "job", columns)
    for column in REFERENCES:
        op.drop_index(f"ix_job_{column}", "job")
        op.create_index(f"ix_job_{column}", "job", [column])
    op.drop_index(LABEL_INDEX, "job_label")
    with op.batch_alter_table("job_label") as batch:
        batch.drop_constraint(op.f("ck_job_label_known_end"), type_="check")
        for column in [*COPIED, "ended_as"]:
            batch.drop_column(column)
    op.create_index(LABEL_INDEX, "job_label", ["key", "value", "job_id"])


def _extend_labels() -> None:
    """As a new table: two versions of each row, and an index of both, would stay twice as large."""
    op.drop_index(LABEL_INDEX, "job_label")
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("pk_job_label", "job_label", type_="primary")  # its name must be free
    op.create_table(
        "job_label_extended",
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        *(sa.Column(name, kind, nullable=False) for name, kind in COPIED.items()),
        sa.Column("ended_as", sa.String(length=16), nullable=True),
        sa.CheckConstraint(f"ended_as IN ({ENDS})", name=op.f("ck_job_label_known_end")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_label_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_label"),
    )
    names, copies = ", ".join(COPIED), ", ".join(f"job.{name}" for name in COPIED)
    ended_as = f"CASE WHEN job.status IN ({ENDS}) THEN job.status END"
    op.execute(
        f"INSERT INTO job_label_extended (job_id, key, value, {names}, ended_as) "  # noqa: S608 – constants
        f"SELECT job_label.job_id, job_label.key, job_label.value, {copies}, {ended_as} "
        "FROM job_label JOIN job ON job.id = job_label.job_id"
    )
    op.drop_table("job_label")
    op.rename_table("job_label_extended", "job_label")
    op.create_index(LABEL_INDEX, "job_label", LABEL_COLUMNS)


def _collate_names(collation: str) -> None:
    """No row is written anew for it; SQLite compares by bytes in any case."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f'ALTER TABLE job ALTER COLUMN name TYPE VARCHAR(128) COLLATE "{collation}"')
