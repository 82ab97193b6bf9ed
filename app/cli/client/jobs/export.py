"""`trainyard jobs export`: every job that the key sees, for other programs."""

import csv
import json
import sys

import click

from app.cli.client.jobs.documents import scheduling, training
from app.cli.client.jobs.filters import status_option
from app.cli.connection import server
from app.domain.spreadsheet_cells import as_text
from trainyard.client import Job

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
@status_option
@click.option("--project", default="", help="Only jobs of this project.")
@click.option("--json", "form", flag_value="json", default=True, help="One JSON object per line; the default.")
@click.option("--csv", "form", flag_value="csv", help="The main columns as comma-separated values with a header line.")
def export(*, status: tuple[str, ...], project: str, form: str) -> None:
    """Print every job, oldest first: one JSON object per line, or CSV."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    with server() as client:
        if form == "csv":
            table.writerow(EXPORTED)
        for job in client.list(status=status, project=project, order_by="created_at"):
            if form == "csv":
                table.writerow(_cells(job))
            else:
                click.echo(json.dumps(job.data))


def _cells(job: Job) -> list[object]:
    within = {**training(job), **scheduling(job)}
    return [_plain(within[name] if name in within else job.data[name]) for name in EXPORTED]


def _plain(value: object) -> object:
    return as_text(value) if isinstance(value, str) else value
