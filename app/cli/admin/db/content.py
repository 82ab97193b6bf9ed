"""`trainyard db check` and `export`: verify and dump the database's content."""

import sys
from typing import IO

import click

from app.cli.database import admin_database
from app.cli.output import json_option, print_json, print_json_line


@click.command()
@json_option
def check(as_json: bool) -> None:  # noqa: FBT001
    """Check the integrity of the database's content; exit code 1 when problems are found."""
    from app.services.operations import integrity

    with admin_database() as db:
        found = list(integrity.problems(db))
    if as_json:
        print_json({"ok": not found, "problems": found})
    else:
        click.echo("\n".join(found) or "no problems found")
    if found:
        raise SystemExit(1)


@click.command()
@click.argument("tables", nargs=-1)
@click.option("--out", type=click.File("w", encoding="utf-8", atomic=True), help="File to write to.  [standard output]")
@click.option("--json", "as_json", is_flag=True, help="No effect: the output is always JSON.")
def export(tables: tuple[str, ...], out: IO[str] | None, as_json: bool) -> None:  # noqa: FBT001
    """Write the rows of TABLES, or of every table, as JSON lines: one consistent snapshot, without secrets.

    Meant for reports and other programs; to restore a database, use `trainyard db backup`.
    """
    from app.services.operations import exports

    del as_json  # every administrator command accepts it
    with admin_database() as db:
        for table, row in exports.rows(db, tables):
            print_json_line({"table": table, **row}, to=out or sys.stdout)
