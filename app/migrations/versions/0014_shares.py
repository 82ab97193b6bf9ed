"""Shares of devices: several attempts on one, each with so many hundredths of it; and MIG slices, known by UUID."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

WHOLE = sa.text("share = 100")


def upgrade() -> None:
    op.add_column("device", sa.Column("uuid", sa.String(64), server_default=sa.text("''"), nullable=False))
    op.add_column("attempt", sa.Column("device_share", sa.Integer(), server_default=sa.text("100"), nullable=False))
    with op.batch_alter_table("reservation") as table:
        table.add_column(sa.Column("share", sa.Integer(), server_default=sa.text("100"), nullable=False))
        table.drop_constraint("pk_reservation", type_="primary")
        table.create_primary_key("pk_reservation", ["node", "device_index", "job_id"])
        table.create_check_constraint(op.f("ck_reservation_part_of_a_device"), "share BETWEEN 1 AND 100")
    op.create_index(
        "uq_reservation_whole_device",
        "reservation",
        ["node", "device_index"],
        unique=True,
        postgresql_where=WHOLE,
        sqlite_where=WHOLE,
    )


def downgrade() -> None:
    """Refused by the former key while a device is shared: end those jobs first."""
    op.drop_index("uq_reservation_whole_device", "reservation")
    with op.batch_alter_table("reservation") as table:
        table.drop_constraint(op.f("ck_reservation_part_of_a_device"), type_="check")
        table.drop_constraint("pk_reservation", type_="primary")
        table.create_primary_key("pk_reservation", ["node", "device_index"])
        table.drop_column("share")
    op.drop_column("attempt", "device_share")
    op.drop_column("device", "uuid")
