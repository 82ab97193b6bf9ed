"""`trainyard cancel`, `checkpoint`, `pause`, `resume` and `retry`: what the server answers is what is said."""

import sys
from typing import Any

import click

from app.cli.client.connection import server
from app.cli.output import json_option, print_json
from app.cli.resources import resource_option
from config.settings import client_tokens
from trainyard.client import Job


@click.command()
@click.argument("job_id")
@click.option("--reason", default="", help="Kept in the job's history.")
@json_option
def cancel(job_id: str, reason: str, as_json: bool) -> None:  # noqa: FBT001
    """End JOB_ID, wherever it is; its checkpoints stay."""
    with server() as client:
        _tell(client.cancel(job_id, reason=reason), as_json=as_json)


@click.command()
@click.argument("job_id")
@json_option
def checkpoint(job_id: str, as_json: bool) -> None:  # noqa: FBT001
    """Have the running JOB_ID save now and go on."""
    with server() as client:
        _tell(client.checkpoint(job_id), as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option("--no-checkpoint", is_flag=True, help="Stop without saving.")
@click.option("--force", is_flag=True, help="Stop it also when its checkpoint can't be saved.")
@click.option("--wait", "waits", is_flag=True, help="Return once it is PAUSED; exit code 1 if it goes on instead.")
@json_option
def pause(job_id: str, no_checkpoint: bool, force: bool, waits: bool, as_json: bool) -> None:  # noqa: FBT001
    """Save JOB_ID and stop it until it is resumed."""
    with server() as client:
        job = client.pause(job_id, save_checkpoint=not no_checkpoint, force=force)
        if waits:
            job = client.wait_paused(job_id)
        _tell(job, as_json=as_json)
        if waits and job.status != "PAUSED":
            sys.exit(1)


@click.command()
@click.argument("job_id")
@click.option("--checkpoint", default="", help="Go on from this one instead of the newest.")
@click.option("--best", is_flag=True, help="Go on from its best checkpoint.")
@json_option
def resume(job_id: str, checkpoint: str, best: bool, as_json: bool) -> None:  # noqa: FBT001
    """Let the paused JOB_ID go on."""
    with server() as client:
        _tell(client.resume(job_id, checkpoint_id=checkpoint, from_best=best), as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option("--checkpoint", default="", help="Start from this one instead of the newest.")
@click.option("--from-start", is_flag=True, help="Start without any checkpoint.")
@resource_option
@json_option
def retry(job_id: str, checkpoint: str, from_start: bool, resources: dict[str, Any], as_json: bool) -> None:  # noqa: FBT001
    """Do the work of the ended JOB_ID again, as a new job, whose id is printed."""
    with server() as client:
        child = client.retry(
            job_id, checkpoint_id=checkpoint, from_start=from_start, resources=resources, tokens=client_tokens()
        )
        _tell(child, as_json=as_json)


def _tell(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job.data)
        return
    wish = f" ({job.requested} requested)" if job.requested else ""
    click.echo(f"{job.job_id} {job.status}{wish}")
    if job.requested:
        click.echo(f"Follow it with: trainyard watch {job.job_id}", err=True)
