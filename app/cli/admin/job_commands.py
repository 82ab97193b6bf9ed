"""`trainyard jobs cancel`, `pause`, `resume` and `retry`."""

from typing import Any

import click
from marshmallow import ValidationError

from app.cli.admin.administrator import ADMINISTRATOR
from app.cli.admin.control_plane import admin_plane
from app.cli.admin.job_admin import first_message
from app.cli.admin.name_options import checked_text
from app.cli.output import json_option, print_json
from app.cli.resources import resource_option
from app.domain.errors import InvalidRequest
from app.models import Job
from app.schemas.jobs import JobSchema, RetrySchema, SubmitJobSchema
from app.services.jobs import commands as services
from app.services.jobs import lookup, retries
from app.services.jobs.details import details
from app.services.jobs.retries import Retry
from app.services.requests.control_plane import ControlPlane

LONGEST_REASON = 1000
LONGEST_ID = 128


@click.command()
@click.argument("job_id")
@click.option("--reason", default="", callback=checked_text(LONGEST_REASON), help="Kept in the job's history.")
@json_option
def cancel(job_id: str, reason: str, as_json: bool) -> None:  # noqa: FBT001
    """End a job, wherever it is."""
    with admin_plane() as plane:
        _tell(plane, services.cancel(plane, ADMINISTRATOR, job_id, reason=reason), as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option("--no-checkpoint", is_flag=True, help="Stop without saving.")
@click.option("--force", is_flag=True, help="Stop it also when its checkpoint can't be saved.")
@json_option
def pause(job_id: str, no_checkpoint: bool, force: bool, as_json: bool) -> None:  # noqa: FBT001
    """Save a job and stop it until it is resumed."""
    with admin_plane() as plane:
        job = services.pause(plane, ADMINISTRATOR, job_id, saves=not no_checkpoint, force=force)
        _tell(plane, job, as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option(
    "--checkpoint", default="", callback=checked_text(LONGEST_ID), help="Go on from this one instead of the newest."
)
@click.option("--best", is_flag=True, help="Go on from its best checkpoint.")
@json_option
def resume(job_id: str, checkpoint: str, best: bool, as_json: bool) -> None:  # noqa: FBT001
    """Let a paused job go on."""
    with admin_plane() as plane:
        try:
            job = services.resume(plane, ADMINISTRATOR, job_id, checkpoint_id=checkpoint, from_best=best)
        except InvalidRequest as error:
            raise click.UsageError(error.message) from error
        _tell(plane, job, as_json=as_json)


@click.command()
@click.argument("job_id")
@click.option(
    "--checkpoint", default="", callback=checked_text(LONGEST_ID), help="Start from this one instead of the newest."
)
@click.option("--from-start", is_flag=True, help="Start without any checkpoint.")
@resource_option
@json_option
def retry(job_id: str, checkpoint: str, from_start: bool, resources: dict[str, Any], as_json: bool) -> None:  # noqa: FBT001
    """Do the work of a job that has ended again, as a new job of its project."""
    try:
        asked = RetrySchema().load({"new_resource_config": resources})
    except ValidationError as error:
        raise click.UsageError(f"--resource: {first_message(error.messages)}") from error
    wanted = Retry(checkpoint_id=checkpoint, from_start=from_start, resources=asked["new_resource_config"])
    with admin_plane() as plane:
        try:
            child = retries.retry(plane, ADMINISTRATOR, job_id, wanted, complete=SubmitJobSchema().load)
        except InvalidRequest as error:
            raise click.UsageError(error.message) from error
        _tell(plane, child, as_json=as_json)


def _tell(plane: ControlPlane, job: Job, *, as_json: bool) -> None:
    with plane.db.read() as session:
        shown = JobSchema().dump(details(session, lookup.find(session, ADMINISTRATOR, job.id)))
    if as_json:
        print_json(shown)
    else:
        click.echo(f"{job.id} {shown['status']}" + (f" ({shown['requested']} requested)" if shown["requested"] else ""))
