"""`trainyard db backup`, `restore` and `settle`: copies of the database, and going back to one."""

from pathlib import Path

import click

from app.cli.admin.administrator import ADMINISTRATOR
from app.cli.admin.database import admin_database, cli_settings, failures_as_messages
from app.cli.output import json_option, print_json
from app.models.base import utc_now
from app.services.operations.backups import after_restore, database
from app.services.operations.diagnosis.findings import size

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=_FILE)
@json_option
def backup(file: Path, as_json: bool) -> None:  # noqa: FBT001
    """Write a copy of the database as of now to FILE; everything may go on running.

    Storage and secret key are not in it: keep copies of both (docs/operations.md, Backup and restore).
    """
    with admin_database() as db:
        written = database.backup(db, file)
    print_json({"file": str(file), "size_bytes": written}) if as_json else click.echo(f"{file}: {size(written)}")


@click.command()
@click.argument("file", type=_FILE)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def restore(file: Path, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Put the copy in FILE in the place of the database, while nothing runs; what was there is kept aside.

    Jobs that were running when the copy was made go back to the queue, and on from their newest checkpoint.
    """
    settings = cli_settings()
    if not yes:
        click.confirm("What happened since the backup was made is forgotten. Go on?", abort=True, err=as_json)
    with failures_as_messages():
        done = database.restore(settings.database, file, actor=ADMINISTRATOR.actor, now=utc_now())
    if as_json:
        print_json({"revision": done.revision, "requeued_jobs": done.requeued_jobs, "aside": done.aside})
        return
    click.echo(f"Restored; {done.requeued_jobs} running job(s) go back to the queue. Start everything again.")
    if done.aside:
        click.echo(f"What was there before: {done.aside}")


@click.command()
@click.confirmation_option(prompt="Every attempt that the database believes to run is ended. Go on?")
@json_option
def settle(as_json: bool) -> None:  # noqa: FBT001
    """After going back in time by other means than `restore`: end what the database believes to be running.

    Run it before anything is started: attempts of the forgotten time must not pass for those to come.
    """
    with admin_database() as db:
        requeued = after_restore.settle(db, actor=ADMINISTRATOR.actor)
    print_json({"requeued_jobs": requeued}) if as_json else click.echo(f"{requeued} job(s) go back to the queue")
