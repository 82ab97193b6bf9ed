"""`trainyard db prune`: applies the retention settings once, by hand."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.database import admin_database, cli_settings
from app.cli.output import json_option, print_json, print_table
from app.services.operations.diagnosis.findings import size
from config.settings import Settings

if TYPE_CHECKING:
    from app.database.engine import Database


NO_RETENTION_SETTING = (
    "No TRAINYARD_RETENTION_… setting is set: everything is retained indefinitely. "
    "docs/how-to/retention.md lists the settings."
)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
def prune(dry_run: bool, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Delete what exceeds the TRAINYARD_RETENTION_… settings: jobs, checkpoints, logs, rows.

    Data that an active job needs is retained. With TRAINYARD_RETENTION_ENABLED=1 the coordinators prune once an hour.
    """
    from app.services.operations.retention import rules

    settings = cli_settings()
    with admin_database() as db:
        if not any(rule.setting for rule in rules.enabled_rules(settings)):
            click.echo(NO_RETENTION_SETTING, err=True)
        if not (dry_run or yes):
            _show(_pruned(db, settings, dry_run=True), as_json=False)
            click.confirm("This can't be undone. Delete it?", abort=True, err=as_json)
        _show(_pruned(db, settings, dry_run=dry_run), as_json=as_json)


def _pruned(db: "Database", settings: Settings, *, dry_run: bool) -> list[dict[str, Any]]:
    from app.services.access.api_keys import CLI_ACTOR
    from app.services.operations.retention import rules

    done = rules.prune(db, settings, actor=CLI_ACTOR, dry_run=dry_run)
    return [
        {"what": rule.what, "setting": rule.variable, "count": p.count, "size_bytes": p.bytes, "still_needed": p.kept}
        for rule, p in done
    ]


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"pruned": rows})
        return
    cells = [
        (
            row["what"],
            row["count"],
            size(row["size_bytes"]) if row["size_bytes"] else "",
            row["still_needed"] or "",
            row["setting"],
        )
        for row in rows
    ]
    print_table(("what", "count", "size", "still needed", "because of"), cells, empty="nothing")
