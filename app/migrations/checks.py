"""Changing a check constraint of a table that keeps its others, on both databases."""

from alembic import op


def replace_check(table: str, name: str, before: str, after: str) -> None:
    """Put one condition in the place of another one; ``name`` is the constraint's, as it is in the database."""
    if op.get_context().dialect.name != "sqlite":
        op.drop_constraint(op.f(name), table, type_="check")
        op.create_check_constraint(op.f(name), table, after)
        return
    # SQLite can't alter a constraint, and a copy of the table would lose its others. Their text is all they are:
    # this is the way that its documentation (ALTER TABLE, "Making Other Kinds Of Table Schema Changes") gives for them.
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema=ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = ?", (before, after, table)
    )
    connection.exec_driver_sql(f"PRAGMA schema_version={version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema=OFF")
