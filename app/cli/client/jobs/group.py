"""`trainyard jobs`: the jobs that the caller's key sees."""

from itertools import islice
from typing import Any

import click

from app.cli.client.jobs.changes import change, delete
from app.cli.client.jobs.compare import compare
from app.cli.client.jobs.documents import scheduling
from app.cli.client.jobs.export import export
from app.cli.client.jobs.filters import status_option
from app.cli.client.jobs.history import HEADS, row_of
from app.cli.client.jobs.verbs import cancel, checkpoint, pause, preempt, resume, retry
from app.cli.connection import ServerGroup, server
from app.cli.handles import job_argument, job_id_of
from app.cli.output import age, full_option, json_option, moment, print_fields, print_json, print_table, short_id
from app.cli.text_options import pair
from trainyard.client import Job

COLUMNS = ("id", "name", "project", "status", "done", "queue", "prio", "node", "age")
HISTORY_LENGTH = 20
HISTORY_LENGTH_JSON = 500


@click.group(cls=ServerGroup)
def jobs() -> None:
    """List, show and control jobs: those of the key's project, or with a super admin's key of all."""


@jobs.command("list")
@status_option
@click.option("--project", default="", help="Only jobs of this project.")
@click.option("--queue", default="", help="Only jobs of this queue.")
@click.option("--name", default="", help="Only jobs whose name starts with this.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable.")
@click.option("--mine", is_flag=True, help="Only jobs that this key submitted.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@full_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the whole ids.")
@json_option
def list_jobs(
    *, labels: tuple[str, ...], mine: bool, limit: int, full: bool, quiet: bool, as_json: bool, **filters: Any
) -> None:
    """List jobs, newest first."""
    wanted = {**filters, "labels": dict(map(pair, labels)), "created_by": "me" if mine else ""}
    with server() as client:
        found = list(islice(client.list(**wanted), limit))
        total = client.count(**wanted) if as_json and len(found) == limit else len(found)
    if as_json:
        print_json({"jobs": [job.data for job in found], "total_count": total})
    elif quiet:
        click.echo("".join(f"{job.job_id}\n" for job in found), nl=False)
    else:
        print_table(COLUMNS, [_row(job, full=full) for job in found], empty="no jobs")


@jobs.command()
@job_argument
@json_option
def show(*, handle: str, as_json: bool) -> None:
    """Show a job and its latest events."""
    with server() as client:
        job = client.get(job_id_of(client, handle))
        most = HISTORY_LENGTH_JSON if as_json else HISTORY_LENGTH
        newest = list(islice(client.events(job.job_id, newest_first=True), most + 1))
    events = newest[:most][::-1]
    if as_json:
        print_json({**job.data, "events": events})
        return
    configs = {name for name in job.data if name.endswith("_config")}
    fields = {name: value for name, value in job.data.items() if name not in configs}
    if until := fields.get("kept_until"):
        fields["status"] = f"{job.status} (its script has failed; kept until {moment(until)})"
    if estimate := fields.get("memory_estimate"):
        fields["memory_estimate"] = estimate["message"]
    print_fields(fields)
    click.echo()
    if len(newest) > most:
        click.echo(f"The last {most} events; all of them: trainyard events {job.job_id}")
    print_table(HEADS, map(row_of, events), empty="no events")


for command in (cancel, pause, resume, retry, preempt, change, checkpoint, compare, delete, export):
    jobs.add_command(command)


def _row(job: Job, *, full: bool) -> tuple[object, ...]:
    placed = scheduling(job)
    return (
        short_id(job.job_id, full=full),
        job.name,
        job.project,
        f"{job.status}{' (kept)' if job.data.get('kept_until') else ''}",
        f"{job.progress:.0%}",
        placed["queue"],
        placed["priority"],
        list(job.node_names),
        age(job.data["created_at"]),
    )
