"""`trainyard cancel`, `checkpoint`, `pause`, `resume`, `retry` and `jobs preempt`."""

import sys
from collections.abc import Callable
from typing import Any

import click

from app.cli.client.watch import EXIT_NOT_COMPLETED, watch_to_end
from app.cli.connection import local_option, server
from app.cli.handles import Command, id_to_stop, job_argument, job_id_of
from app.cli.output import json_option, print_json
from app.cli.resources import by_role, resource_option
from app.cli.text_options import checked_text
from config.environment import client_tokens
from trainyard.client import Job

LONGEST_REASON = 1000
LONGEST_ID = 128

_reason_option = click.option(
    "--reason", default="", callback=checked_text(LONGEST_REASON), help="Recorded in the job's history."
)


def _checkpoint_option(says: str) -> Callable[[Command], Command]:
    return click.option("--checkpoint", "checkpoint_id", default="", callback=checked_text(LONGEST_ID), help=says)


@click.command()
@job_argument
@_reason_option
@click.option("--wait", "waits", is_flag=True, help="Return once it has ended; exit code 3 unless it is CANCELLED.")
@local_option
@json_option
def cancel(*, handle: str, reason: str, waits: bool, as_json: bool) -> None:
    """Cancel JOB in any state; its checkpoints stay."""
    with server() as client:
        job = client.cancel(id_to_stop(client, handle), reason=reason)
        if waits:
            job = client.wait(job.job_id)
    _show(job, as_json=as_json)
    if waits and job.status != "CANCELLED":
        sys.exit(EXIT_NOT_COMPLETED)


@click.command()
@job_argument
@local_option
@json_option
def checkpoint(*, handle: str, as_json: bool) -> None:
    """Save a checkpoint of the running JOB; it continues."""
    with server() as client:
        _show(client.checkpoint(job_id_of(client, handle)), as_json=as_json)


@click.command()
@job_argument
@click.option("--no-checkpoint", is_flag=True, help="Stop without saving.")
@click.option("--force", is_flag=True, help="Stop it also when its checkpoint can't be saved.")
@click.option("--wait", "waits", is_flag=True, help="Return once it is PAUSED; exit code 1 if it continues.")
@local_option
@json_option
def pause(*, handle: str, no_checkpoint: bool, force: bool, waits: bool, as_json: bool) -> None:
    """Save JOB and stop it until it is resumed."""
    with server() as client:
        job = client.pause(job_id_of(client, handle), save_checkpoint=not no_checkpoint, force=force)
        if waits:
            job = client.wait_paused(job.job_id)
    _show(job, as_json=as_json)
    if waits and job.status != "PAUSED":
        sys.exit(1)


@click.command()
@job_argument
@_checkpoint_option("Continue from this one, not the newest.")
@click.option("--best", is_flag=True, help="Continue from its best checkpoint.")
@click.option("--wait", "waits", is_flag=True, help="Return once it runs again; exit code 3 if it ends before.")
@local_option
@json_option
def resume(*, handle: str, checkpoint_id: str, best: bool, waits: bool, as_json: bool) -> None:
    """Put the paused JOB back into its queue; one that still saves for its pause trains on."""
    with server() as client:
        job = client.resume(job_id_of(client, handle), checkpoint_id=checkpoint_id, from_best=best)
        if waits:
            job = client.wait_running(job.job_id)
    _show(job, as_json=as_json)
    if waits and job.status not in ("TRAINING", "EVALUATING", "SERVING", "COMPLETED"):
        sys.exit(EXIT_NOT_COMPLETED)


@click.command()
@job_argument
@_checkpoint_option("Start from this one, not the newest.")
@click.option("--from-start", is_flag=True, help="Start without any checkpoint.")
@resource_option
@click.option("--wait", "waits", is_flag=True, help="Follow the new job to its end; exit code 3 unless it completes.")
@local_option
@json_option
def retry(
    *, handle: str, checkpoint_id: str, from_start: bool, resources: dict[str, Any], waits: bool, as_json: bool
) -> None:
    """Retry the finished JOB as a new job of its project; prints the new job."""
    of_job, roles = by_role(resources)
    with server() as client:
        child = client.retry(
            job_id_of(client, handle),
            checkpoint_id=checkpoint_id,
            from_start=from_start,
            resources=of_job,
            roles=roles,
            tokens=client_tokens(),
        )
        if not (waits and as_json):
            _show(child, as_json=as_json)
        if waits:
            watch_to_end(client, child.job_id, as_json=as_json)


@click.command()
@job_argument
@_reason_option
@json_option
def preempt(*, handle: str, reason: str, as_json: bool) -> None:
    """Preempt a running job: it saves a checkpoint and releases its devices; on_preemption decides what follows."""
    with server() as client:
        job = client.preempt(id_to_stop(client, handle), reason=reason)
    print_json(job.data) if as_json else click.echo(f"{job.job_id} {job.status} (preemption requested)")


def _show(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job.data)
        return
    requested = f" ({job.requested} requested)" if job.requested else ""
    click.echo(f"{job.job_id} {job.status}{requested}")
    if job.requested:
        click.echo(f"Follow it with: trainyard watch {job.job_id}", err=True)
