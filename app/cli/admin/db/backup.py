"""`trainyard db backup`, `restore` and `settle`: copies of the database, and restoring one."""

from pathlib import Path

import click

from app.cli.database import admin_database, cli_settings, failures_as_messages
from app.cli.output import json_option, print_json
from app.services.operations.diagnosis.findings import size

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("file", type=_FILE)
@json_option
def backup(file: Path, as_json: bool) -> None:  # noqa: FBT001
    """Write a consistent copy of the database to FILE; no process has to stop.

    The copy excludes the storage and the secret key: back up both as well (docs/how-to/backup-and-upgrade.md).
    """
    from app.services.operations.backups import database

    with admin_database() as db:
        written = database.backup(db, file)
    print_json({"file": str(file), "size_bytes": written}) if as_json else click.echo(f"{file}: {size(written)}")


@click.command()
@click.argument("file", type=_FILE)
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@json_option
def restore(file: Path, yes: bool, as_json: bool) -> None:  # noqa: FBT001
    """Replace the database with the backup in FILE; stop all processes first. The current database is moved aside.

    Jobs that were running when the backup was made are requeued and continue from their newest checkpoint.
    """
    from app.models.base import utc_now
    from app.services.access.api_keys import CLI_ACTOR
    from app.services.operations.backups import database

    settings = cli_settings()
    if not yes:
        click.confirm("Everything recorded since the backup will be lost. Continue?", abort=True, err=as_json)
    with failures_as_messages():
        done = database.restore(settings.database, file, actor=CLI_ACTOR, now=utc_now())
    if as_json:
        print_json({"revision": done.revision, "requeued_jobs": done.requeued_jobs, "aside": done.aside})
        return
    click.echo(f"Restored; {done.requeued_jobs} running job(s) were requeued. Start the processes again.")
    if done.aside:
        click.echo(f"Previous database: {done.aside}")


@click.command()
@click.confirmation_option(prompt="Every attempt recorded as running will be ended. Continue?")
@json_option
def settle(as_json: bool) -> None:  # noqa: FBT001
    """End every attempt recorded as running, after restoring the database by other means than `restore`.

    Run it before starting any process: attempts from the lost period must not be mistaken for new ones.
    """
    from app.services.access.api_keys import CLI_ACTOR
    from app.services.operations.backups import after_restore

    with admin_database() as db:
        requeued = after_restore.settle(db, actor=CLI_ACTOR)
    print_json({"requeued_jobs": requeued}) if as_json else click.echo(f"{requeued} job(s) were requeued")
