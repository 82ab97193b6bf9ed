"""`trainyard jobs preempt`."""

import click

from app.cli.admin.administrator import ADMINISTRATOR
from app.cli.admin.control_plane import admin_plane
from app.cli.job_commands import LONGEST_REASON
from app.cli.output import json_option, print_json
from app.cli.text_options import checked_text


@click.command()
@click.argument("job_id")
@click.option("--reason", default="", callback=checked_text(LONGEST_REASON), help="Recorded in the job's history.")
@json_option
def preempt(job_id: str, reason: str, as_json: bool) -> None:  # noqa: FBT001
    """Preempt a running job: it saves a checkpoint and releases its devices; on_preemption decides what follows."""
    from app.schemas.jobs import JobSchema
    from app.services.jobs import commands
    from app.services.jobs.details import details

    with admin_plane() as plane:
        job = commands.preempt(plane, ADMINISTRATOR, job_id, reason=reason)
        if as_json:
            with plane.db.read() as session:
                print_json(JobSchema().dump(details(session, job)))
        else:
            click.echo(f"{job.id} {job.status} (preemption requested)")
