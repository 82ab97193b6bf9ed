"""Sweeps, their trials and reports, and the sweep of a job."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)
_WATCHED = ("INSERT", "UPDATE OF version")


def upgrade() -> None:
    _create_sweep()
    _create_trial()
    op.create_table(
        "trial_report",
        sa.Column("sweep_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("continues", sa.Boolean(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("compared", sa.Integer(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("sweep_id", "number", "rung", name="pk_trial_report"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], ondelete="CASCADE", name="fk_trial_report_sweep_id"),
        sa.UniqueConstraint("sweep_id", "seq", name="uq_trial_report_sweep_id_seq"),
    )
    op.create_index("ix_trial_report_rung", "trial_report", ["sweep_id", "rung", "seq"])
    _create_event()
    op.add_column("job", sa.Column("sweep_id", sa.String(64), nullable=True))
    is_trial = sa.text("sweep_id IS NOT NULL")
    op.create_index("ix_job_sweep_id", "job", ["sweep_id"], postgresql_where=is_trial, sqlite_where=is_trial)
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    action = "FOR EACH STATEMENT EXECUTE FUNCTION note_change()" if is_postgresql else _COUNT
    for event in _WATCHED:
        op.execute(f"CREATE TRIGGER {_trigger(event)} AFTER {event} ON sweep {action}")


def downgrade() -> None:
    of_table = " ON sweep" if op.get_bind().dialect.name == "postgresql" else ""
    for event in _WATCHED:
        op.execute(f"DROP TRIGGER {_trigger(event)}{of_table}")
    op.drop_index("ix_job_sweep_id", "job")
    op.drop_column("job", "sweep_id")
    for table in ("sweep_event", "trial_report", "trial", "sweep"):
        op.drop_table(table)


_COUNT = "BEGIN UPDATE change SET number = number + 1; END"


def _trigger(event: str) -> str:
    return f"note_sweep_{event.partition(' ')[0].lower()}"


def _create_sweep() -> None:
    op.create_table(
        "sweep",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("submits_as", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("labels", _JSON, nullable=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("known", _JSON, nullable=False),
        sa.Column("base", _JSON, nullable=False),
        sa.Column("sealed_secrets", sa.Text(), nullable=False),
        sa.Column("foreign", _JSON, nullable=False),
        sa.Column("alias", sa.String(320), nullable=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=False),
        sa.Column("ends_as", sa.String(16), nullable=True),
        sa.Column("pending_reason", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("next_number", sa.Integer(), nullable=False),
        sa.Column("best_number", sa.Integer(), nullable=True),
        sa.Column("improved_seq", sa.Integer(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME, nullable=True),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sweep"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_sweep_project"),
        sa.CheckConstraint(
            "status IN ('PENDING', 'RUNNING', 'PAUSED', 'FINISHING', 'COMPLETED', 'CANCELLED', 'FAILED')",
            name="known_status",
        ),
    )
    op.create_index("ix_sweep_created", "sweep", ["created_at", "id"])
    op.create_index("ix_sweep_project_created", "sweep", ["project", "created_at", "id"])
    op.create_index("ix_sweep_status", "sweep", ["status", "id"])
    is_named = sa.text("alias IS NOT NULL")
    op.create_index("uq_sweep_alias", "sweep", ["alias"], unique=True, postgresql_where=is_named, sqlite_where=is_named)


def _create_trial() -> None:
    op.create_table(
        "trial",
        sa.Column("sweep_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(64), nullable=True),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("values", _JSON, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("seen_seq", sa.Integer(), nullable=False),
        sa.Column("bracket", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("promoted", sa.Boolean(), nullable=False),
        sa.Column("error_type", sa.String(32), nullable=True),
        sa.Column("objectives", _JSON, nullable=True),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("violations", _JSON, nullable=False),
        sa.Column("rung", sa.Integer(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("observed_seq", sa.Integer(), nullable=True),
        sa.Column("device_seconds", sa.Double(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("sweep_id", "number", name="pk_trial"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], ondelete="CASCADE", name="fk_trial_sweep_id"),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], ondelete="SET NULL", name="fk_trial_job_id"),
        sa.UniqueConstraint("job_id", name="uq_trial_job_id"),
        sa.CheckConstraint("state IN ('RUNNING', 'COMPLETED', 'STOPPED', 'FAILED', 'CANCELLED')", name="known_state"),
    )
    op.create_index("ix_trial_state", "trial", ["sweep_id", "state", "number"])
    op.create_index("ix_trial_value", "trial", ["sweep_id", "value", "number"])
    is_running = sa.text("state = 'RUNNING'")
    op.create_index("ix_trial_running", "trial", ["sweep_id"], postgresql_where=is_running, sqlite_where=is_running)


def _create_event() -> None:
    op.create_table(
        "sweep_event",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("sweep_id", sa.String(64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("type", sa.String(48), nullable=False),
        sa.Column("from_status", sa.String(16), nullable=True),
        sa.Column("to_status", sa.String(16), nullable=True),
        sa.Column("actor", sa.String(96), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweep_event"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], ondelete="CASCADE", name="fk_sweep_event_sweep_id"),
        sa.UniqueConstraint("sweep_id", "seq", name="uq_sweep_event_sweep_id_seq"),
    )
