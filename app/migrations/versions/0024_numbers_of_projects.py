"""Numbers of projects, for clients that know projects by numbers: 1 is the default project, older ones come first."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("project", sa.Column("number", sa.Integer(), nullable=False, server_default=sa.text("0")))
    connection = op.get_bind()
    oldest_first = "ORDER BY CASE name WHEN 'default' THEN 0 ELSE 1 END, created_at, name"
    names = connection.scalars(sa.text(f"SELECT name FROM project {oldest_first}")).all()  # noqa: S608 – a constant
    for number, name in enumerate(names, start=1):
        connection.execute(
            sa.text("UPDATE project SET number = :number WHERE name = :name"), {"number": number, "name": name}
        )
    op.create_index("uq_project_number", "project", ["number"], unique=True)


def downgrade() -> None:
    op.drop_index("uq_project_number", table_name="project")
    op.drop_column("project", "number")
