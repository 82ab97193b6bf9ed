"""`trainyard schedule shares`: projects in fair-share order, the next to be served first."""

import click

from app.cli.admin.administrator import picked
from app.cli.admin.database import admin_database
from app.cli.output import json_option, print_json, print_table

_COLUMNS = {
    "project": "project",
    "kind": "of",
    "used": "used",
    "deserved": "deserved",
    "borrowed": "borrowed",
    "limit": "limit",
    "over_quota_weight": "weight",
    "running_jobs": "running",
    "waiting_jobs": "waiting",
}
_KINDS = {"gpus": "GPUs", "cpu_slots": "CPU slots"}


@click.command()
@json_option
def shares(as_json: bool) -> None:  # noqa: FBT001
    """Show each project's usage of its deserved share, least first: the first one with waiting jobs is served next.

    Capacity reserved for long-waiting jobs counts towards the order, but is not shown.
    """
    from app.schemas.projects import ProjectShareSchema
    from app.services.queues.shares import project_shares

    with admin_database() as db, db.read() as session:
        items = ProjectShareSchema(many=True).dump(project_shares(session))
    if as_json:
        print_json({"shares": items})
        return
    rows = [{**item, "kind": _KINDS[item["kind"]]} for item in items]
    print_table(tuple(_COLUMNS.values()), picked(rows, tuple(_COLUMNS)), empty="no registered nodes")
