"""Services, their replicas, what gateways count of them, their history, and what keys use."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from app.migrations.checks import replace_check
from app.migrations.versioning import SchemaNotReady

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)
_WATCHED = ("INSERT", "UPDATE OF version")
_COUNT = "BEGIN UPDATE change SET number = number + 1; END"
_STATES_BEFORE = (
    "status IN ('PENDING', 'QUEUED', 'SCHEDULING', 'PREPARING', 'TRAINING', 'CHECKPOINTING', 'EVALUATING', "
    "'EXPORTING', 'COMPLETED', 'PAUSED', 'CANCELLED', 'FAILED', 'PREEMPTED')"
)
_STATES_AFTER = _STATES_BEFORE.replace("'EVALUATING', ", "'EVALUATING', 'SERVING', ")
_REQUESTS_BEFORE = "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue', 'preempt')"
_REQUESTS_AFTER = "requested IS NULL OR requested IN ('pause', 'cancel', 'requeue', 'preempt', 'drain')"


def upgrade() -> None:
    replace_check("job", "ck_job_known_status", _STATES_BEFORE, _STATES_AFTER)
    replace_check("job", "ck_job_known_wish", _REQUESTS_BEFORE, _REQUESTS_AFTER)
    _create_service()
    _create_replica()
    _create_load()
    _create_event()
    _create_usage()
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    action = "FOR EACH STATEMENT EXECUTE FUNCTION note_change()" if is_postgresql else _COUNT
    for event in _WATCHED:
        op.execute(f"CREATE TRIGGER {_trigger(event)} AFTER {event} ON service {action}")


def downgrade() -> None:
    if op.get_bind().execute(sa.text("SELECT count(*) FROM job WHERE status = 'SERVING'")).scalar_one():
        raise SchemaNotReady("replicas are SERVING, which the former version does not know: pause the services first")
    of_table = " ON service" if op.get_bind().dialect.name == "postgresql" else ""
    for event in _WATCHED:
        op.execute(f"DROP TRIGGER {_trigger(event)}{of_table}")
    for table in ("model_usage", "service_event", "service_load", "replica", "service"):
        op.drop_table(table)
    op.execute("UPDATE job SET requested = NULL WHERE requested = 'drain'")
    replace_check("job", "ck_job_known_wish", _REQUESTS_AFTER, _REQUESTS_BEFORE)
    replace_check("job", "ck_job_known_status", _STATES_AFTER, _STATES_BEFORE)


def _trigger(event: str) -> str:
    return f"note_service_{event.partition(' ')[0].lower()}"


def _create_service() -> None:
    op.create_table(
        "service",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("created_by", sa.String(64), nullable=False),
        sa.Column("submits_as", sa.String(64), nullable=False),
        sa.Column("spec", _JSON, nullable=False),
        sa.Column("base", _JSON, nullable=False),
        sa.Column("sealed_secrets", sa.Text(), nullable=False),
        sa.Column("task", sa.String(16), nullable=False),
        sa.Column("model_key", sa.String(255), nullable=False),
        sa.Column("is_automatic", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("pending_reason", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("next_number", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failed_at", _TIME, nullable=True),
        sa.Column("not_before_at", _TIME, nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("requested_at", _TIME, nullable=True),
        sa.Column("needed_at", _TIME, nullable=True),
        sa.Column("above_target_since", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.CheckConstraint("status IN ('ACTIVE', 'PAUSED', 'ENDING', 'ENDED')", name="known_status"),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name="fk_service_project"),
        sa.PrimaryKeyConstraint("id", name="pk_service"),
    )
    op.create_index("ix_service_created", "service", ["created_at", "id"])
    live = sa.text("ended_at IS NULL")
    for name, columns in (("uq_service_live_name", ["project", "name"]), ("ix_service_live", ["project", "model_key"])):
        op.create_index(
            name, "service", columns, unique=name.startswith("uq"), postgresql_where=live, sqlite_where=live
        )


def _create_replica() -> None:
    op.create_table(
        "replica",
        sa.Column("job_id", sa.String(64), nullable=False),
        sa.Column("service_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("drain_requested_at", _TIME, nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("address", sa.String(255), nullable=True),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("answers_since", _TIME, nullable=True),
        sa.Column("ended_seen", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_replica_job_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_replica_service_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_replica"),
    )
    op.create_index("ix_replica_service", "replica", ["service_id", "number"])
    op.create_index(
        "ix_replica_current",
        "replica",
        ["service_id"],
        postgresql_where=sa.text("NOT ended_seen"),
        sqlite_where=sa.text("ended_seen = 0"),
    )


def _create_load() -> None:
    op.create_table(
        "service_load",
        sa.Column("service_id", sa.String(64), nullable=False),
        sa.Column("gateway", sa.String(64), nullable=False),
        sa.Column("in_flight", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_service_load_service_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("service_id", "gateway", name="pk_service_load"),
    )


def _create_event() -> None:
    op.create_table(
        "service_event",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("service_id", sa.String(64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("type", sa.String(48), nullable=False),
        sa.Column("actor", sa.String(96), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_service_event_service_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_service_event"),
        sa.UniqueConstraint("service_id", "seq", name="uq_service_event_service_id_seq"),
    )


def _create_usage() -> None:
    op.create_table(
        "model_usage",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(255), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("service_id", sa.String(64), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", "key_id", "model", "project", name="pk_model_usage"),
    )
    op.create_index("ix_model_usage_project_day", "model_usage", ["project", "day"])
