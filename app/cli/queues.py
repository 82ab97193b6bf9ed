"""`trainyard queues`: the waiting lines, in the database."""

import click

from app.cli.administrator import ADMINISTRATOR, picked
from app.cli.database import admin_database
from app.cli.names import checked_name
from app.cli.output import json_option, print_json, print_table
from app.models.base import utc_now
from app.schemas.queues import EntrySchema, QueuesSchema
from app.services import queues as services
from app.services.pages import PageRequest


@click.group()
def queues() -> None:
    """Queues, from the database."""


@queues.command("list")
@json_option
def list_queues(as_json: bool) -> None:  # noqa: FBT001
    """Every queue with how many jobs wait and run."""
    with admin_database() as db, db.read() as session:
        answer = QueuesSchema().dump({"queues": services.summaries(session, ADMINISTRATOR)})
    if as_json:
        print_json(answer)
        return
    rows = picked(answer["queues"], ("name", "waiting", "running"))
    print_table(("name", "waiting", "running"), rows, empty="no queues")


@queues.command()
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def show(name: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001
    """The jobs that wait, in the order in which they will be served; all of them, or those of the queue NAME."""
    request = PageRequest(size=limit, order="priority")
    with admin_database() as db, db.read() as session:
        if name is not None:
            services.require(session, name, field="name")
        line = services.line(session, ADMINISTRATOR, request, queue=name, now=utc_now())
        entries = EntrySchema(many=True).dump(line.items)
    if as_json:
        print_json({"entries": entries, "total_count": line.total_count})
        return
    names = ("position", "job_id", "name", "project", "queue", "priority", "status", "pending_reason")
    heads = ("position", "id", "name", "project", "queue", "priority", "status", "waits for")
    print_table(heads, picked(entries, names), empty="nobody waits")


@queues.command()
@click.argument("name", callback=checked_name)
@json_option
def create(name: str, as_json: bool) -> None:  # noqa: FBT001
    """Make a queue; again is fine."""
    with admin_database() as db, db.write() as session:
        services.ensure(session, name)
    print_json({"name": name}) if as_json else click.echo(name)
