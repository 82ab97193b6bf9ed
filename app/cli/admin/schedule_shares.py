"""`trainyard schedule shares`: projects in fair-share order, the next to be served first."""

import click

from app.cli.admin.columns import picked
from app.cli.connection import local_option, server
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


@local_option
@click.command()
@json_option
def shares(as_json: bool) -> None:  # noqa: FBT001
    """Show each project's usage of its deserved share, least first: the first one with waiting jobs is served next.

    A team's key sees its own project. Capacity reserved for long-waiting jobs counts towards the order, but is not
    shown.
    """
    with server() as client:
        items = client.queues.shares()
    if as_json:
        print_json({"shares": items})
        return
    rows = [{**item, "kind": _KINDS[item["kind"]]} for item in items]
    print_table(tuple(_COLUMNS.values()), picked(rows, tuple(_COLUMNS)), empty="no registered nodes")
