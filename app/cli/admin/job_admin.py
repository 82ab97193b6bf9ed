"""`trainyard jobs change`, `delete` and `export`."""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from app.cli.admin.administrator import ADMINISTRATOR
from app.cli.admin.control_plane import admin_plane
from app.cli.admin.database import admin_database
from app.cli.output import json_option, print_json
from app.cli.text_options import pair
from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import JobState

if TYPE_CHECKING:
    from app.database.engine import Database
    from app.models import Job
    from app.services.requests.control_plane import ControlPlane


EXPORT_PAGE = 500
EXPORTED = (
    "job_id",
    "name",
    "project",
    "status",
    "training_type",
    "framework",
    "queue",
    "priority",
    "progress",
    "current_step",
    "total_steps",
    "elapsed_seconds",
    "attempt",
    "error_type",
    "created_at",
    "started_at",
    "finished_at",
)


@click.command()
@click.argument("job_id")
@click.option("--priority", type=click.IntRange(0, 10), help="From 0 to 10, the most urgent.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Replace all labels; repeatable.")
@click.option("--no-labels", is_flag=True, help="Remove all labels.")
@json_option
def change(job_id: str, priority: int | None, labels: tuple[str, ...], no_labels: bool, as_json: bool) -> None:  # noqa: FBT001
    """Set the priority or the labels of an unfinished job."""
    from marshmallow import ValidationError

    from app.schemas.jobs import ChangeJobSchema
    from app.services.jobs import updates

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
        _print_job(plane, job, as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option("--artifacts", is_flag=True, help="Also delete its files: checkpoints, model, logs.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
def delete(job_id: str, artifacts: bool, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Delete a finished job with its history and metrics."""
    from app.services.jobs import deletion

    if not yes:
        what = f"{job_id} with its checkpoints, model and logs" if artifacts else f"{job_id} (its files stay)"
        click.confirm(f"Delete {what}?", abort=True, err=True)
    with admin_plane() as plane:
        deletion.remove(plane, ADMINISTRATOR, job_id, artifacts=artifacts)
    print_json({"job_id": job_id, "deleted": True}) if as_json else click.echo(f"{job_id} deleted")


@click.command()
@click.option("--status", multiple=True, type=click.Choice([str(state) for state in JobState], case_sensitive=False))
@click.option("--project", help="Only jobs of this project.")
@click.option("--json", "form", flag_value="json", default=True, help="One JSON object per line; the default.")
@click.option("--csv", "form", flag_value="csv", help="The main columns as comma-separated values with a header line.")
def export(status: tuple[str, ...], project: str | None, form: str) -> None:
    """Print every job, oldest first: one JSON object per line, or CSV."""
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


def first_message(messages: object) -> str:
    """The first message of a schema's nested error messages."""
    if isinstance(messages, dict):
        return first_message(next(iter(messages.values())))
    return first_message(messages[0]) if isinstance(messages, list) else str(messages)


def _all(db: "Database", filters: dict[str, Any]) -> "Iterator[tuple[Job, dict[str, Any]]]":
    """Every job, page by page: an export must not hold one transaction open for as long as its output is read."""
    from app.schemas.jobs import JobSchema
    from app.services.jobs import listing
    from app.services.requests.pagination import PageRequest

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


def _plain(value: object) -> object:
    """Escapes a cell that a spreadsheet would evaluate as a formula when the file is opened."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def job_document(plane: "ControlPlane", job_id: str) -> Mapping[str, Any]:
    """The job as the API shows it."""
    from app.schemas.jobs import JobSchema
    from app.services.jobs import lookup
    from app.services.jobs.details import details

    with plane.db.read() as session:
        return dict(JobSchema().dump(details(session, lookup.find(session, ADMINISTRATOR, job_id))))


def _print_job(plane: "ControlPlane", job: "Job", *, as_json: bool) -> None:
    if as_json:
        print_json(job_document(plane, job.id))
    else:
        click.echo(f"{job.id} {job.status}, priority {job.priority}")
