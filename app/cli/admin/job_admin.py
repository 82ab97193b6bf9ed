"""`trainyard jobs change`, `delete` and `export`."""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
from marshmallow import ValidationError

from app.cli.admin.administrator import ADMINISTRATOR
from app.cli.admin.control_plane import admin_plane
from app.cli.admin.database import admin_database
from app.cli.output import json_option, print_json
from app.database.engine import Database
from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import JobState
from app.models import Job
from app.schemas.jobs import ChangeJobSchema, JobSchema
from app.services.jobs import deletion, listing, lookup, updates
from app.services.jobs.details import details
from app.services.requests.control_plane import ControlPlane
from app.services.requests.pagination import PageRequest

EXPORT_PAGE = 500
EXPORTED = (
    "job_id", "name", "project", "status", "training_type", "framework", "queue", "priority", "progress",
    "current_step", "total_steps", "elapsed_seconds", "attempt", "error_type", "created_at", "started_at",
    "finished_at",
)  # fmt: skip


@click.command()
@click.argument("job_id")
@click.option("--priority", type=click.IntRange(0, 10), help="10 is the most urgent.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="All labels anew; may be repeated.")
@click.option("--no-labels", is_flag=True, help="Take all labels away.")
@json_option
def change(job_id: str, priority: int | None, labels: tuple[str, ...], no_labels: bool, as_json: bool) -> None:  # noqa: FBT001
    """Set the priority or the labels of a job that has not ended."""
    wanted: dict[str, Any] = {} if priority is None else {"priority": priority}
    if labels or no_labels:
        wanted["labels"] = dict(map(pair, labels))
    try:
        wanted = ChangeJobSchema().load(wanted)
    except ValidationError as error:
        raise click.UsageError(f"labels: {first_message(error.messages)}") from error
    with admin_plane() as plane:
        try:
            job = updates.change(plane, ADMINISTRATOR, job_id, wanted)
        except InvalidRequest as error:
            raise click.UsageError(error.message) from error
        _tell(plane, job, as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option("--artifacts", is_flag=True, help="Remove its files too: checkpoints, model, logs.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def delete(job_id: str, artifacts: bool, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Delete a job that has ended, with its history and metrics."""
    if not yes:
        what = f"{job_id} with its checkpoints, model and logs" if artifacts else f"{job_id} (its files stay)"
        click.confirm(f"Delete {what}?", abort=True, err=True)
    with admin_plane() as plane:
        deletion.remove(plane, ADMINISTRATOR, job_id, artifacts=artifacts)
    print_json({"job_id": job_id, "deleted": True}) if as_json else click.echo(f"{job_id} deleted")


@click.command()
@click.option("--status", multiple=True, type=click.Choice([str(state) for state in JobState], case_sensitive=False))
@click.option("--project", help="Only of this project.")
@click.option("--json", "form", flag_value="json", default=True, help="One JSON object per line; the default.")
@click.option("--csv", "form", flag_value="csv", help="The main columns, comma-separated, with a head line.")
def export(status: tuple[str, ...], project: str | None, form: str) -> None:
    """Print every job, oldest first: one JSON object in each line, or CSV."""
    given = {"status": [one.upper() for one in status], "project": project}
    filters = {name: value for name, value in given.items() if value}
    table = csv.writer(sys.stdout, lineterminator="\n")
    with admin_database() as db:
        if form == "csv":
            table.writerow(EXPORTED)
        for job, item in _all(db, filters):
            if form == "csv":
                table.writerow([_plain(item.get(name, getattr(job, name, ""))) for name in EXPORTED])
            else:
                click.echo(json.dumps(item))


def pair(text: str) -> tuple[str, str]:
    """(key, value) of a label as it is written on the command line."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.BadParameter(f"{text!r} is no label; write KEY=VALUE")
    return key, value


def first_message(messages: Any) -> str:
    """The first problem that a schema tells of, however deep."""
    while not isinstance(messages, str):
        messages = next(iter(messages.values() if isinstance(messages, dict) else messages))
    return messages


def _all(db: Database, filters: dict[str, Any]) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Page by page: an export must not hold a transaction open for as long as somebody reads it."""
    after: tuple[Any, ...] | None = None
    while True:
        with db.read() as session:
            request = PageRequest(size=EXPORT_PAGE, order="created_at", after=after)
            page = listing.page(session, ADMINISTRATOR, filters, request)
            found = [(each.job, dict(JobSchema().dump(each))) for each in page.items]
        yield from found
        after = page.next_after
        if after is None:
            return


def _plain(value: Any) -> Any:
    """A cell that a spreadsheet takes for a formula would be run by whoever opens the file."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def shown(plane: ControlPlane, job_id: str) -> Mapping[str, Any]:
    """The job as the API shows it."""
    with plane.db.read() as session:
        return dict(JobSchema().dump(details(session, lookup.find(session, ADMINISTRATOR, job_id))))


def _tell(plane: ControlPlane, job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(shown(plane, job.id))
    else:
        click.echo(f"{job.id} {job.status}, priority {job.priority}")
