"""`trainyard jobs change` and `delete`."""

from typing import Any

import click

from app.cli.client.jobs.documents import scheduling
from app.cli.connection import server
from app.cli.handles import id_to_stop, job_argument, job_id_of
from app.cli.output import json_option, print_json
from app.cli.text_options import pair


@click.command()
@job_argument
@click.option("--priority", type=click.IntRange(0, 10), help="From 0 to 10, the most urgent.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Replace all labels; repeatable.")
@click.option("--no-labels", is_flag=True, help="Remove all labels.")
@json_option
def change(*, handle: str, priority: int | None, labels: tuple[str, ...], no_labels: bool, as_json: bool) -> None:
    """Set the labels of a job, or the priority of one that has not ended."""
    if priority is None and not labels and not no_labels:
        raise click.UsageError("give at least one of --priority, --label, --no-labels")
    wanted: dict[str, Any] = {"labels": dict(map(pair, labels))} if labels or no_labels else {}
    with server() as client:
        job = client.change(job_id_of(client, handle), priority=priority, **wanted)
    if as_json:
        print_json(job.data)
    else:
        click.echo(f"{job.job_id} {job.status}, priority {scheduling(job)['priority']}")


@click.command()
@job_argument
@click.option("--artifacts", is_flag=True, help="Also delete its files: checkpoints, model, logs.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
def delete(*, handle: str, artifacts: bool, yes: bool, as_json: bool) -> None:
    """Delete a finished job with its history and metrics."""
    with server() as client:
        job_id = id_to_stop(client, handle)
        if not yes:
            what = f"{job_id} with its checkpoints, model and logs" if artifacts else f"{job_id} (its files stay)"
            click.confirm(f"Delete {what}?", abort=True, err=True)
        client.delete(job_id, artifacts=artifacts)
    print_json({"job_id": job_id, "deleted": True}) if as_json else click.echo(f"{job_id} deleted")
