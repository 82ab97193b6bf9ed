"""`trainyard db`: making the database, moving its schema, and what the modules beside this one do with it."""

import importlib

import click

from app.cli.admin.database import cli_settings, failures_as_messages
from app.cli.admin.db.backup import backup, restore, settle
from app.cli.admin.db.content import check, export
from app.cli.admin.db.prune import prune
from app.cli.output import json_option, print_fields, print_json
from app.database.from_settings import open_database
from app.migrations.versioning import HEAD, revision_of
from app.services.operations import bootstrap


@click.group()
def db() -> None:
    """The database itself."""


for _command in (check, backup, restore, settle, export, prune):
    db.add_command(_command)


@db.command()
@json_option
def init(as_json: bool) -> None:  # noqa: FBT001
    """Make everything that must be there before the first start: schema, secrets, default project, admin key."""
    with failures_as_messages():
        settings = bootstrap.prepare(cli_settings())
    told = {"revision": HEAD, "admin_key_file": str(settings.admin_key_file)}
    print_json(told) if as_json else print_fields(told)


@db.command()
@click.argument("revision", default=HEAD)
@json_option
def upgrade(revision: str, as_json: bool) -> None:  # noqa: FBT001
    """Bring the schema up to REVISION, the newest unless given."""
    _move("upgrade", revision, as_json=as_json)


@db.command()
@click.argument("revision")
@click.confirmation_option(prompt="Columns and tables that are newer are deleted with their content. Go on?")
@json_option
def downgrade(revision: str, as_json: bool) -> None:  # noqa: FBT001
    """Take the schema back to REVISION; `base` deletes every table."""
    _move("downgrade", revision, as_json=as_json)


@db.command()
@json_option
def current(as_json: bool) -> None:  # noqa: FBT001
    """Tell which revision the database has, and which one this program needs."""
    told = {"revision": _revision(), "needed": HEAD}
    print_json(told) if as_json else print_fields({**told, "revision": told["revision"] or "none"})


@db.command(hidden=True)
@click.argument("number")
@click.argument("message")
def revision(number: str, message: str) -> None:
    """For developers: write the revision NUMBER from the difference between models and database."""
    with failures_as_messages():
        bound = open_database(cli_settings().database)
        importlib.import_module("app.migrations.runner").new_revision(bound.engine, message, number=number)
        bound.close()


def _move(direction: str, revision: str, *, as_json: bool) -> None:
    with failures_as_messages():
        bound = open_database(cli_settings().database)
        getattr(importlib.import_module("app.migrations.runner"), direction)(bound.engine, revision)
        bound.close()
    told = {"revision": _revision()}
    print_json(told) if as_json else print_fields({"revision": told["revision"] or "none"})


def _revision() -> str | None:
    with failures_as_messages():
        bound = open_database(cli_settings().database)
        try:
            with bound.engine.connect() as connection:
                return revision_of(connection)
        finally:
            bound.close()
