"""`trainyard jobs`: jobs of every project, in the database."""

from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.administrator import ADMINISTRATOR, newest, picked
from app.cli.admin.database import admin_database
from app.cli.admin.job_admin import change, delete, export
from app.cli.admin.job_commands import cancel, checkpoint, compare, pause, resume, retry
from app.cli.admin.job_preemption import preempt
from app.cli.output import age, json_option, print_fields, print_json, print_table
from app.cli.text_options import pair
from app.domain.lifecycle.states import JobState

if TYPE_CHECKING:
    from app.database.engine import Database


COLUMNS = ("job_id", "name", "project", "status", "progress", "queue", "priority", "node_names", "created_at")
HISTORY_LENGTH = 20
HISTORY_LENGTH_JSON = 500


@click.group()
def jobs() -> None:
    """Manage jobs, in the database."""


@jobs.command("list")
@click.option("--status", multiple=True, type=click.Choice([str(state) for state in JobState], case_sensitive=False))
@click.option("--project", help="Only jobs of this project.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--name", help="Only jobs whose name starts with this.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Print only the ids.")
@json_option
def list_jobs(limit: int, quiet: bool, as_json: bool, **given: Any) -> None:  # noqa: FBT001
    """List jobs, newest first."""
    from app.schemas.jobs import JobSchema
    from app.services.jobs import listing

    filters = _filters(**given)
    with admin_database() as db, db.read() as session:
        page = listing.page(session, ADMINISTRATOR, filters, newest(limit))
        items = [JobSchema().dump(item) for item in page.items]
    if as_json:
        print_json({"jobs": items, "total_count": page.total_count})
        return
    if quiet:
        click.echo("".join(f"{item['job_id']}\n" for item in items), nl=False)
        return
    shown = [
        {
            **item,
            "progress": f"{item['progress']:.0%}",
            "queue": details.job.queue,
            "priority": details.job.priority,
            "created_at": age(item["created_at"]),
        }
        for item, details in zip(items, page.items, strict=True)
    ]
    heads = ("id", "name", "project", "status", "done", "queue", "prio", "node", "age")
    print_table(heads, picked(shown, COLUMNS), empty="no jobs")


@jobs.command()
@click.argument("job_id")
@json_option
def show(job_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Show a job and its latest events."""
    with admin_database() as db:
        job, history, events = _read(db, job_id, HISTORY_LENGTH_JSON if as_json else HISTORY_LENGTH)
    if as_json:
        print_json({**job, "events": events})
        return
    configs = {name for name in job if name.endswith("_config")}
    print_fields({name: value for name, value in job.items() if name not in configs})
    click.echo()
    if history > len(events):
        click.echo(f"The last {len(events)} of {history} events:")
    rows = [
        (_short(event["at"]), event["type"], event["to_status"], event["actor"], event["message"]) for event in events
    ]
    print_table(("at", "event", "status", "by", "message"), rows, empty="no events")


for command in (cancel, pause, resume, retry, preempt, change, checkpoint, compare, delete, export):
    jobs.add_command(command)


def _read(db: "Database", job_id: str, limit: int) -> tuple[dict[str, Any], int, list[dict[str, Any]]]:
    """The job, its event count, and its newest ``limit`` events, oldest first."""
    from app.schemas.events import EventSchema
    from app.schemas.jobs import JobSchema
    from app.services.jobs import history as job_history
    from app.services.jobs import lookup
    from app.services.jobs.details import details as details_of

    with db.read() as session:
        job = JobSchema().dump(details_of(session, lookup.find(session, ADMINISTRATOR, job_id)))
        history = job_history.page(session, job_id, newest(limit))
        events = EventSchema(many=True).dump(reversed(history.items))
    return dict(job), history.total_count, list(events)


def _filters(status: tuple[str, ...], labels: tuple[str, ...], **words: str | None) -> dict[str, Any]:
    """The filters that were given, in the form ``listing.page`` accepts."""
    given = {"status": [one.upper() for one in status], "labels": [pair(label) for label in labels], **words}
    return {name: value for name, value in given.items() if value}


def _short(moment: str) -> str:
    return moment[:19].replace("T", " ")
