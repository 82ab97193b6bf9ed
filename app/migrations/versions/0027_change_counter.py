"""The change counter, the triggers that raise it, and an index of the jobs that rest after a failure."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

# What coordinators and node workers act on. Heartbeats, renewals of leases and progress are not listed: they are read
# by those who watch them, and would count all the time.
_WATCHED = {
    "job": ("INSERT", "UPDATE OF version"),
    "lease": ("INSERT", "UPDATE OF claimed_at, released_at, supervisor_pid"),
    "inspection": ("INSERT", "UPDATE OF state, holder"),
    "webhook": ("UPDATE OF is_active",),
    "webhook_delivery": ("INSERT", "UPDATE OF state, next_try_at"),
    "node": (
        "INSERT",
        "UPDATE OF state, labels, admin_labels, capabilities, limits, cpu_cores, ram_mb, storage_mb, sandbox, arch",
        "DELETE",
    ),
    "device": ("INSERT", "UPDATE", "DELETE"),
    "stuck_device": ("INSERT", "DELETE"),
    "node_fault": ("INSERT",),
    "reservation": ("DELETE",),
    "queue": ("INSERT", "UPDATE", "DELETE"),
    "project": ("INSERT", "UPDATE"),
}
# In the schema of the table: a restore moves tables, and a trigger must not depend on the caller's search path.
_FUNCTION = """
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval(format('%I.change_number_seq', TG_TABLE_SCHEMA)::regclass);
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    op.create_table(
        "change", sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True)
    )
    rests = sa.text("not_before_at IS NOT NULL")
    op.create_index("ix_job_not_before_at", "job", ["not_before_at"], postgresql_where=rests, sqlite_where=rests)
    if _is_postgresql():
        op.execute(_FUNCTION)
        action = "FOR EACH STATEMENT EXECUTE FUNCTION note_change()"
    else:
        op.execute("INSERT INTO change (number) VALUES (1)")
        action = "BEGIN UPDATE change SET number = number + 1; END"
    for table, events in _WATCHED.items():
        for event in events:
            op.execute(f"CREATE TRIGGER {_name(table, event)} AFTER {event} ON {table} {action}")


def downgrade() -> None:
    of_table = " ON {}" if _is_postgresql() else ""
    for table, events in _WATCHED.items():
        for event in events:
            op.execute(f"DROP TRIGGER {_name(table, event)}{of_table.format(table)}")
    if _is_postgresql():
        op.execute("DROP FUNCTION note_change()")
    op.drop_index("ix_job_not_before_at", "job")
    op.drop_table("change")


def _name(table: str, event: str) -> str:
    return f"note_{table}_{event.partition(' ')[0].lower()}"


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"
